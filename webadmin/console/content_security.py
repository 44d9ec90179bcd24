"""The Content-Security-Policy of every page; the policy itself is in the settings.

The admin's theme has expressions in attributes of its templates. Alpine's build for such a policy, which is bundled
with the scripts of our pages and replaces the theme's, interprets them without evaluating code. While it is not bundled
(it needs npm), the theme's own build is served, and pages below ``/admin/`` allow ``'unsafe-eval'`` for it. Inline
scripts and event handlers, and scripts of other origins, are always blocked.
"""

from __future__ import annotations

from pathlib import Path

from csp.constants import UNSAFE_EVAL
from csp.middleware import CSPMiddleware
from django.http import HttpRequest
from django.http.response import HttpResponseBase

EVALUATING = "/admin/"
ALPINE = Path(__file__).with_name("static") / "unfold/js/alpine/alpine.js"
"""Alpine's build without code evaluation, at the path of the theme's."""


class ContentSecurityMiddleware(CSPMiddleware):
    """Add the policy to every response."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Return the response with its policy."""
        if request.path_info.startswith(EVALUATING) and not ALPINE.exists():
            response._csp_update = {"script-src": [UNSAFE_EVAL]}  # type: ignore[attr-defined]  # read by django-csp
        return super().process_response(request, response)
