"""Middleware: the doors of profilers are answered before everything that browsers need, which costs more than a push.

``//`` in a path means ``/`` here: a base address with a slash at its end makes some SDKs send ``//push.v1…``. A
redirect would not do: clients repeat a redirected POST as GET. Sessions, signing in and forgery protection are of no
use to senders that prove themselves with each request.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse
from django.urls import ResolverMatch

from webadmin.ingest.urls import DOORS, PUSH_METHOD

_REPEATED = re.compile(r"/{2,}")


class DoorsFirst:
    """Answers pushes itself, if their Host is allowed, and passes everything else on with single slashes."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "//" in request.path_info:
            request.path_info = _REPEATED.sub("/", request.path_info)
        path = request.path_info.removeprefix("/")
        view = DOORS.get(PUSH_METHOD if path.endswith("/" + PUSH_METHOD) else path)
        if view is None:
            return self._get_response(request)
        try:
            request.get_host()
        except DisallowedHost:
            text = "the Host of this request is not in ALLOWED_HOSTS\n"
            return HttpResponse(text, status=400, content_type="text/plain")
        request.resolver_match = ResolverMatch(view, (), {}, route=path)
        return view(request)
