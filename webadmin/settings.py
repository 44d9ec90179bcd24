"""Django's settings, all from the environment; without any of it one machine works from its own folder.

``engine.settings.service`` declares the variables. Each becomes a Django setting of the same name, unless this module
derives something from it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from csp.constants import NONCE, NONE, SELF, UNSAFE_INLINE

from engine.core.version import VERSION
from engine.settings.base import is_set
from engine.settings.service import ServiceSettings
from engine.storage import is_local
from engine.storage.opening import folder_of
from webadmin.adminkit.theme import UNFOLD  # noqa: F401  (the theme's settings)
from webadmin.base.database.url import database_settings
from webadmin.base.home import kept_secret, private_file, private_folder
from webadmin.base.lane_manifest import web_lanes

_read = ServiceSettings.read()
_lanes = web_lanes()
# Django's debug page shows settings; it would not hide the password in DATABASE_URL.
globals().update(_read.model_dump(exclude={"DATABASE_URL", "LITHIFY_HOME", "LITHIFY_TOKEN_KEYS"}))

HOME = private_folder(_read.LITHIFY_HOME)
SECRET_KEY = _read.SECRET_KEY or kept_secret(HOME / "secret_key")
TOKEN_KEYS = _read.LITHIFY_TOKEN_KEYS or [kept_secret(HOME / "token_key")]
METRICS_TOKEN = _read.METRICS_TOKEN or kept_secret(HOME / "metrics_token")
if not is_set("DATABASE_URL"):
    private_file(HOME / "lithify.sqlite3")
if is_local(_read.OBJECT_STORE_URL):
    with suppress(OSError):  # a folder that cannot be made is reported when the store is used
        private_folder(folder_of(_read.OBJECT_STORE_URL))

DATABASES = {"default": database_settings(_read.DATABASE_URL)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "webadmin.embedded",
    "webadmin.console",  # before the theme, whose templates it overrides
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "axes",
    "django_celery_beat",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "webadmin.base.access",
    "webadmin.accounts",
    "webadmin.schedule",
    *(app for lane in _lanes for app in lane.apps),
    "webadmin.progress",
    "webadmin.placement",
    "webadmin.ingest",
    "webadmin.query",
]

MIDDLEWARE = [
    "webadmin.ingest.ingest_middleware.IngestFastPathMiddleware",
    "webadmin.console.content_security.ContentSecurityMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "webadmin.base.access.confined_staff.ConfinementMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "webadmin.urls"
WSGI_APPLICATION = "webadmin.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "webadmin.base.access.confined_staff.ConfinedBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"

LOGIN_REDIRECT_URL = "admin:index"

STATIC_URL = "static/"
STATIC_ROOT = HOME / "static"
STATIC_ROOT.mkdir(exist_ok=True)  # WhiteNoise warns of a missing folder
# While nothing is collected WhiteNoise serves straight from the packages: one command starts the site.
WHITENOISE_USE_FINDERS = True

AXES_FAILURE_LIMIT = _read.LOGIN_FAILURES_MAX
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = ["username", "ip_address"]  # either of them, each by itself
AXES_CLIENT_IP_CALLABLE = "webadmin.base.access.logins.client_address"
AXES_LOCKOUT_CALLABLE = "webadmin.base.access.logins.answer_locked_out"
# A success would forget the failures of all accounts at its address: who has one account could guess at the others.
AXES_RESET_ON_SUCCESS = False
AXES_ENABLE_ADMIN = False
AXES_DISABLE_ACCESS_LOG = True
AXES_VERBOSE = False

HTTPS = _read.HTTPS
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
# Nor is a viewer redirected: it would ask again as GET, and has shown its secret already. Pushes never come this far.
SECURE_REDIRECT_EXEMPT = [
    r"^(healthz|readyz|progressz|metrics)$",
    r"^(.+/)?querier\.v1\.QuerierService/",
    r"^pyroscope/",
    r"^lakefs/",
]
# What these warn of is switched by HTTPS above: an installation on one machine has no TLS and must still start clean.
SILENCED_SYSTEM_CHECKS = [] if HTTPS else ["security.W004", "security.W008", "security.W012", "security.W016"]
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, UNSAFE_INLINE],  # sizes and colours of charts are attributes
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["webadmin.base.access.authentication.WorkerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_THROTTLE_CLASSES": ["webadmin.base.access.request_rates.CredentialThrottle"],
    "DEFAULT_PARSER_CLASSES": ["webadmin.base.request_bounds.BoundedJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "webadmin.base.error_answers.answer_error",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Lithify",
    "DESCRIPTION": "The protocol between the compaction service and its workers.",
    "VERSION": VERSION,
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": ["rest_framework.authentication.SessionAuthentication"],
    "SERVE_PERMISSIONS": ["webadmin.base.access.metrics_token.MayReadSchema"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    # Both serializers call their field "limit": without names of their own the schema would number them.
    "ENUM_NAME_OVERRIDES": {
        "ScheduleLimitEnum": "webadmin.schedule.api.operation_serializers.LIMITS",
        "PushLimitEnum": "webadmin.ingest.actions.NAMES",
        "PauseModeEnum": "webadmin.schedule.api.operation_serializers.MODES",
    }
    | {name: choices for lane in _lanes for name, choices in lane.enum_names.items()},
}

CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "webadmin.base.plain_log.OneLineFormatter",
            "format": "{asctime} {levelname} {name} {message}",
            "style": "{",
        }
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": _read.LOG_LEVEL},
}
