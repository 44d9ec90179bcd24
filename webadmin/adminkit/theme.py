"""The theme of the admin."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static

from webadmin.adminkit.navigation import sidebar


def style_sheet(request: HttpRequest) -> str:
    """Return the URL of our style sheet."""
    return static("console/console.css")


def script(request: HttpRequest) -> str:
    """Return the URL of the script of all pages."""
    return static("console/admin-page.js")


def favicon(request: HttpRequest) -> str:
    """Return the URL of the icon of the browser's tab."""
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
        # Only the accent colour is warm: a warm grey base would clash with the badges.
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
    "SIDEBAR": {"show_search": False, "show_all_applications": False, "navigation": sidebar},
}
