"""How the admin looks and what its side bar lists: the settings of the theme, free of any table."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy


class MayView:
    """Says whether an operator may see a model's pages; the side bar shows no link that leads nowhere."""

    def __init__(self, permission: str) -> None:
        self.permission = permission

    def __call__(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm(self.permission))


def _list(title: str, icon: str, app: str, model: str) -> dict[str, Any]:
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(f"admin:{app}_{model}_changelist"),
        "permission": MayView(f"{app}.view_{model}"),
    }


NAVIGATION = [
    {
        "items": [
            {"title": "Overview", "icon": "dashboard", "link": reverse_lazy("admin:index")},
            {"title": "Progress", "icon": "trending_up", "link": reverse_lazy("progress-page")},
            {"title": "Flame graph", "icon": "local_fire_department", "link": reverse_lazy("flame-page")},
            {"title": "Why is nothing happening?", "icon": "help", "link": reverse_lazy("standstill-page")},
        ]
    },
    {
        "title": "Schedule",
        "items": [
            _list("Jobs", "task_alt", "schedule", "job"),
            _list("Level queues", "stacks", "profiles", "levelqueue"),
            _list("Evictions register", "inventory_2", "progress", "parkedjob"),
            _list("Quarantine", "coronavirus", "schedule", "quarantine"),
            _list("Stops of quarantine", "front_hand", "schedule", "isolationstop"),
            _list("Workers", "memory", "schedule", "worker"),
            _list("Command log", "receipt_long", "schedule", "command"),
        ],
    },
    {
        "title": "Index",
        "items": [
            _list("Blocks", "deployed_code", "profiles", "block"),
            _list("Tombstones", "auto_delete", "profiles", "tombstone"),
            _list("Delete requests", "person_remove", "profiles", "deleterequest"),
            _list("Pushes", "publish", "ingest", "pushcount"),
            _list("Dead letters", "mark_email_unread", "profiles", "deadletter"),
            _list("Refused blocks", "block", "profiles", "refusalcount"),
            _list("Tenants", "apartment", "access", "tenant"),
        ],
    },
    {
        "title": "Prometheus blocks",
        "items": [
            _list("Buckets", "inventory", "tsdb", "bucket"),
            _list("Tenants and intervals", "calendar_month", "tsdb", "buckettenant"),
            _list("Groups", "join_inner", "tsdb", "group"),
            _list("Blocks of buckets", "deployed_code", "tsdb", "block"),
            _list("Blocks kept out", "coronavirus", "tsdb", "blockquarantine"),
            _list("Outbox", "outbox", "tsdb", "outboxstep"),
        ],
    },
    {
        "title": "Tables",
        "items": [
            _list("Tables", "table_chart", "tables", "datasource"),
            _list("Chunks", "view_timeline", "tables", "chunk"),
            _list("Tasks", "join_inner", "tables", "task"),
            _list("Files", "description", "tables", "segment"),
            _list("Files kept out", "coronavirus", "tables", "badfile"),
            _list("Orders about chunks", "gavel", "tables", "chunkorder"),
        ],
    },
    {
        "title": "Catalogs",
        "items": [
            _list("Repositories", "library_books", "catalog", "repository"),
            _list("Branches", "fork_right", "catalog", "branch"),
            _list("Compactions", "compress", "catalog", "compaction"),
            _list("Imports", "input", "catalog_api", "importrun"),
        ],
    },
    {
        "title": "Placement",
        "items": [
            {"title": "Ring and load", "icon": "donut_large", "link": reverse_lazy("placement-page")},
            _list("Segment writers", "edit_note", "placement", "instance"),
            _list("Rule versions", "account_tree", "placement", "rulesversion"),
            _list("Rules by dataset", "timeline", "placement", "rulechange"),
            _list("Placement limits", "straighten", "placement", "placementlimit"),
            _list("Overrides and pins", "push_pin", "placement", "placementoverride"),
            _list("Decisions", "gavel", "placement", "placementchange"),
            _list("Ring changes", "sync_alt", "placement", "ringchange"),
        ],
    },
    {
        "title": "Rules",
        "items": [
            _list("Limits", "speed", "schedule", "limits"),
            _list("Limits set at run time", "tune", "schedule", "limitchange"),
            _list("Limits of pushes", "input", "ingest", "pushlimitchange"),
            _list("Pauses", "pause_circle", "schedule", "pause"),
            _list("Level policies", "rule", "profiles", "levelpolicy"),
            _list("Retention", "event_busy", "profiles", "retentionrule"),
            _list("Legal holds", "gavel", "profiles", "legalhold"),
            _list("Periodic tasks", "update", "django_celery_beat", "periodictask"),
        ],
    },
    {
        "title": "Access",
        "items": [
            _list("Worker credentials", "key", "access", "workercredential"),
            _list("Audit entries", "history", "access", "auditentry"),
            _list("Operators", "person", "auth", "user"),
            _list("Groups", "group", "auth", "group"),
            {"title": "API", "icon": "api", "link": reverse_lazy("docs")},
        ],
    },
]


def style_sheet(request: HttpRequest) -> str:
    """Return the address of our own style sheet."""
    return static("console/console.css")


def script(request: HttpRequest) -> str:
    """Return the address of the script of all pages."""
    return static("console/admin-page.js")


def favicon(request: HttpRequest) -> str:
    """Return the address of the sign in the browser's tab."""
    return static("console/lithify.svg")


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Lithify",
    "SITE_HEADER": "Lithify",
    "SITE_SUBHEADER": "compaction",
    "SITE_SYMBOL": "layers",
    "SITE_URL": None,
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "DASHBOARD_CALLBACK": "webadmin.console.pages.front_page",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": favicon}],
    "STYLES": [style_sheet],
    "SCRIPTS": [script],
    "COLORS": {
        # Stone, as it hardens: a warm grey base would fight the badges, so only the accent is earthen.
        "primary": {
            "50": "oklch(98% .012 62)",
            "100": "oklch(95% .03 62)",
            "200": "oklch(89% .06 60)",
            "300": "oklch(82% .09 58)",
            "400": "oklch(74% .115 55)",
            "500": "oklch(65% .13 50)",
            "600": "oklch(55% .125 47)",
            "700": "oklch(47% .11 45)",
            "800": "oklch(40% .09 45)",
            "900": "oklch(34% .07 46)",
            "950": "oklch(23% .05 46)",
        }
    },
    "SIDEBAR": {"show_search": False, "show_all_applications": False, "navigation": NAVIGATION},
}
