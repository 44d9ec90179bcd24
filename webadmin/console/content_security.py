"""The Content-Security-Policy of every page; the policy itself is in the settings.

The admin's theme evaluates expressions in attributes of its own templates (Alpine), which needs ``'unsafe-eval'`` on
pages below ``/admin/`` and nowhere else. Inline scripts and event handlers, and scripts of other origins, run nowhere.
"""

from __future__ import annotations

from csp.constants import UNSAFE_EVAL
from csp.middleware import CSPMiddleware
from django.http import HttpRequest
from django.http.response import HttpResponseBase

EVALUATING = "/admin/"


class ContentSecurityMiddleware(CSPMiddleware):
    """Adds the policy to every answer."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Return the answer with its policy."""
        if request.path_info.startswith(EVALUATING):
            response._csp_update = {"script-src": [UNSAFE_EVAL]}
        return super().process_response(request, response)
