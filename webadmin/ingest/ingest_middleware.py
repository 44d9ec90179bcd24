"""Middleware that handles ingest requests before the middleware stack for browsers, which costs more than a push.

``//`` in a path is read as ``/``, because some SDKs append ``/push.v1…`` to a base address that ends with a slash. A
redirect does not help: clients repeat a redirected POST as GET. Sessions, login and CSRF protection do not apply to
requests that carry their own credentials.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse
from django.urls import ResolverMatch

from webadmin.ingest.urls import INGEST_VIEWS, PUSH_METHOD

_REPEATED = re.compile(r"/{2,}")


class IngestFastPathMiddleware:
    """Handle ingest requests whose Host is allowed; pass all other requests on, with repeated slashes merged."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "//" in request.path_info:
            request.path_info = _REPEATED.sub("/", request.path_info)
        path = request.path_info.removeprefix("/")
        view = INGEST_VIEWS.get(PUSH_METHOD if path.endswith("/" + PUSH_METHOD) else path)
        if view is None:
            return self._get_response(request)
        try:
            request.get_host()
        except DisallowedHost:
            text = "the Host of this request is not in ALLOWED_HOSTS\n"
            return HttpResponse(text, status=400, content_type="text/plain")
        request.resolver_match = ResolverMatch(view, (), {}, route=path)
        return view(request)
