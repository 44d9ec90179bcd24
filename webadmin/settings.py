"""Django's settings, all from the environment; without any of it one machine works from its own folder.

LITHIFY_HOME          folder for what this installation makes by itself (default ``.lithify``)
DATABASE_URL          ``sqlite:///…`` or ``postgresql://…`` (default: SQLite in LITHIFY_HOME)
OBJECT_STORE_URL      ``file://…`` or ``s3://…`` (default: a folder in LITHIFY_HOME)
TABLES_URL            ``file://…`` or ``s3://…``: tenants place tables below it (default: a folder in LITHIFY_HOME)
STORE_ROOTS           comma separated URLs: below them operators may adopt tables and buckets (default: none)
BROKER_URL            the Celery broker (default: Redis on this machine)
SECRET_KEY            Django's key (default: made once, kept in LITHIFY_HOME)
LITHIFY_TOKEN_KEYS    keys that sign tokens and documents, newest first, comma separated (default: made once, kept)
ALLOW_UNSAFE_DATABASE  1: acknowledge pushes although a crash of the database may take them back (default 0)
DEBUG                 1 for tracebacks in the browser (default 0)
ALLOWED_HOSTS         comma separated host names (default: this machine only)
HTTPS                 1 when the site is served over TLS only: secure cookies, redirect, HSTS (default 0)
CSRF_TRUSTED_ORIGINS  comma separated origins, behind a proxy that changes the host
LOG_LEVEL             of the console log (default INFO)
HISTORY_DAYS          days for which the log and attempts of ended jobs are kept (default 90; 0: for ever)
STALLED_AFTER_SECONDS after which work that is due and not done makes /progressz unhealthy (default 900)
METRICS_TOKEN         bearer token of /metrics, /progressz and the schema (default: made once, kept in LITHIFY_HOME)
PROXY_COUNT           reverse proxies in front of web that append to X-Forwarded-For (default 0)
LOGIN_FAILURES_MAX    failed logins of an account or address before it is locked for 15 minutes (default 10)
CREDENTIAL_REQUESTS_PER_SECOND requests of a credential in each web process, 0: any number (default 100)
WRITER_FLUSH_SECONDS  a segment writer flushes so long after the first profile (default 0.5)
WRITER_FLUSH_BYTES    or as soon as it has gathered so many bytes (default 32 MiB)
WRITER_MEMORY_BYTES   bytes of unanswered pushes it holds; more are refused (default 256 MiB)
WRITER_SUSPECT_SECONDS after so long without a heartbeat a segment writer gets nothing new (default 3)
WRITER_TIMEOUT_SECONDS after so long without a heartbeat it loses its shards to the others (default 60)
CATALOG_OBJECT_BYTES  largest object that is uploaded through the catalog's API (default 5 GiB)
CATALOG_REPOSITORY_GRACE_SECONDS a deleted repository can be restored for so long (default 7 days)
DISTRIBUTOR_ZONE      zone of this web process: its segment writers are asked first (default: none)
TRUST_TENANT_HEADER   1: pushes without a credential are taken for the tenant their header names (default 0)
PLACEMENT_CONFIDENCE_SECONDS so long usage is gathered before the first placement rules are published (default 0)
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import timedelta

from csp.constants import NONCE, NONE, SELF, UNSAFE_INLINE

from engine.core.version import VERSION
from engine.storage import is_local, resolve_links
from engine.storage.opening import folder_of
from webadmin.adminkit.theme import UNFOLD  # noqa: F401  (the theme's settings)
from webadmin.base.database.url import database_settings
from webadmin.base.home import home_folder, kept_secret, private_file, private_folder


def _list(name: str, default: str = "") -> list[str]:
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def _flag(name: str) -> bool:
    return os.environ.get(name, "0").lower() in {"1", "true", "yes"}


HOME = home_folder()
ALLOW_UNSAFE_DATABASE = _flag("ALLOW_UNSAFE_DATABASE")
DEBUG = _flag("DEBUG")
SECRET_KEY = os.environ.get("SECRET_KEY") or kept_secret(HOME / "secret_key")
TOKEN_KEYS = _list("LITHIFY_TOKEN_KEYS") or [kept_secret(HOME / "token_key")]
ALLOWED_HOSTS = _list("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = _list("CSRF_TRUSTED_ORIGINS")

_database_url = os.environ.get("DATABASE_URL") or f"sqlite:///{private_file(HOME / 'lithify.sqlite3')}"
DATABASES = {"default": database_settings(_database_url)}
OBJECT_STORE_URL = resolve_links(os.environ.get("OBJECT_STORE_URL") or f"file://{HOME}/objects")
if is_local(OBJECT_STORE_URL):
    with suppress(OSError):  # a folder that cannot be made is named by whoever uses the store
        private_folder(folder_of(OBJECT_STORE_URL))
TABLES_URL = resolve_links(os.environ.get("TABLES_URL") or f"file://{HOME}/tables")
STORE_ROOTS = [resolve_links(root) for root in _list("STORE_ROOTS")]
BROKER_URL = os.environ.get("BROKER_URL") or "redis://127.0.0.1:6379/0"
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
    "webadmin.lanes.profiles",
    "webadmin.progress",
    "webadmin.placement",
    "webadmin.ingest",
    "webadmin.query",
    "webadmin.lanes.tsdb",
    "webadmin.lanes.tables",
    "webadmin.lanes.catalog",
    "webadmin.lanes.catalog.api",
]

MIDDLEWARE = [
    "webadmin.ingest.doors_first.DoorsFirst",
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

HISTORY_DAYS = int(os.environ.get("HISTORY_DAYS") or 90)
STALLED_AFTER_SECONDS = int(os.environ.get("STALLED_AFTER_SECONDS") or 900)
METRICS_TOKEN = os.environ.get("METRICS_TOKEN") or kept_secret(HOME / "metrics_token")
PROXY_COUNT = int(os.environ.get("PROXY_COUNT") or 0)
LOGIN_FAILURES_MAX = int(os.environ.get("LOGIN_FAILURES_MAX") or 10)
CREDENTIAL_REQUESTS_PER_SECOND = float(os.environ.get("CREDENTIAL_REQUESTS_PER_SECOND") or 100)
AXES_FAILURE_LIMIT = LOGIN_FAILURES_MAX
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = ["username", "ip_address"]  # either of them, each by itself
AXES_CLIENT_IP_CALLABLE = "webadmin.base.access.logins.client_address"
AXES_LOCKOUT_CALLABLE = "webadmin.base.access.logins.answer_locked_out"
# A success would forget the failures of all accounts at its address: who has one account could guess at the others.
AXES_RESET_ON_SUCCESS = False
AXES_ENABLE_ADMIN = False
AXES_DISABLE_ACCESS_LOG = True
AXES_VERBOSE = False
WRITER_FLUSH_SECONDS = float(os.environ.get("WRITER_FLUSH_SECONDS") or 0.5)
WRITER_FLUSH_BYTES = int(os.environ.get("WRITER_FLUSH_BYTES") or 32 << 20)
WRITER_MEMORY_BYTES = int(os.environ.get("WRITER_MEMORY_BYTES") or 256 << 20)
WRITER_SUSPECT_SECONDS = float(os.environ.get("WRITER_SUSPECT_SECONDS") or 3)
WRITER_TIMEOUT_SECONDS = float(os.environ.get("WRITER_TIMEOUT_SECONDS") or 60)
QUERY_THREADS = int(os.environ.get("QUERY_THREADS") or 8)
QUERY_CACHE_BYTES = int(os.environ.get("QUERY_CACHE_BYTES") or 128 << 20)
QUERY_BYTES = int(os.environ.get("QUERY_BYTES") or 8 << 30)
QUERY_SECONDS = float(os.environ.get("QUERY_SECONDS") or 60)
QUERY_MEMORY_BYTES = int(os.environ.get("QUERY_MEMORY_BYTES") or 1 << 30)
QUERY_WAITING = int(os.environ.get("QUERY_WAITING") or 32)
QUERY_WAIT_SECONDS = float(os.environ.get("QUERY_WAIT_SECONDS") or 10)
QUERY_LENGTH_SECONDS = int(os.environ.get("QUERY_LENGTH_SECONDS") or 31 * 86_400)
QUERY_LOOKBACK_SECONDS = int(os.environ.get("QUERY_LOOKBACK_SECONDS") or 0)
CATALOG_OBJECT_BYTES = int(os.environ.get("CATALOG_OBJECT_BYTES") or 5 << 30)
CATALOG_REPOSITORY_GRACE_SECONDS = int(os.environ.get("CATALOG_REPOSITORY_GRACE_SECONDS") or 7 * 86_400)
DISTRIBUTOR_ZONE = os.environ.get("DISTRIBUTOR_ZONE", "")
TRUST_TENANT_HEADER = _flag("TRUST_TENANT_HEADER")
PLACEMENT_CONFIDENCE_SECONDS = float(os.environ.get("PLACEMENT_CONFIDENCE_SECONDS") or 0)

HTTPS = _flag("HTTPS")
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
        "ScheduleLimitEnum": "webadmin.schedule.operation_serializers.LIMITS",
        "PushLimitEnum": "webadmin.ingest.push_limits_api.NAMES",
        "ChunkOrderEnum": "webadmin.lanes.tables.serializers.KINDS",
    },
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
    "root": {"handlers": ["console"], "level": os.environ.get("LOG_LEVEL", "INFO")},
}
