"""Middleware: ``//`` in a path means ``/``.

A base address with a slash at its end makes some SDKs send ``//push.v1…``. A redirect would not do: clients repeat a
redirected POST as GET.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

_REPEATED = re.compile(r"/{2,}")


class CollapseRepeatedSlashes:
    """Gives the resolver the path with single slashes."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "//" in request.path_info:
            request.path_info = _REPEATED.sub("/", request.path_info)
        return self._get_response(request)
