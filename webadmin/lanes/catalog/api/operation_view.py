"""Entry point of every request of the catalog's API: authentication, dispatch, and a uniform form of errors.

Invalid requests of a known key are counted for operators; requests without a key never cause a database write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import APIException, Throttled

from engine.core.errors import LithifyError
from webadmin.base.access.errors import ScopeMissing
from webadmin.base.access.refusals import count_refused_requests
from webadmin.base.access.request_rates import seconds_to_wait
from webadmin.base.access.scopes import SCOPE_READ_CATALOG, SCOPE_WRITE_CATALOG
from webadmin.lanes.catalog.api.access_keys import AccessKey, key_of_request
from webadmin.lanes.catalog.api.answers import WRONG, answer, refusal
from webadmin.lanes.catalog.api.browsers import check_origin
from webadmin.lanes.catalog.api.calls import Call
from webadmin.lanes.catalog.api.errors import NotServed

log = logging.getLogger(__name__)

Handler = Callable[[Call], HttpResponseBase]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the API: the SDK's name for it, method and path, and whether it changes anything.

    Operations with ``is_open`` need no key.
    """

    name: str
    method: str
    path: str
    handler: Handler
    writes: bool = False
    is_open: bool = False


View = Callable[..., HttpResponseBase]


def operation_view(operations: Mapping[str, Operation]) -> View:
    """Return the view of one path; ``operations`` are keyed by method."""

    @csrf_exempt
    def view(request: HttpRequest, **names: str) -> HttpResponseBase:
        key: AccessKey | None = None
        try:
            operation = operations.get(request.method or "")
            if operation is None:
                return _other_method(request, operations)
            if not operation.is_open:
                key = key_of_request(request)
                wait = seconds_to_wait(key.name)
                if wait:
                    raise Throttled(wait)
                _check_scope(key, operation)
            if operation.writes:
                check_origin(request)
            call = Call(request, operation.name, key or NO_KEY, names)
            if "repository" in names:
                call.find_repository()
            return operation.handler(call)
        except Exception as error:  # noqa: BLE001 - every error is returned in the form that the client can parse
            response = refusal(error)
            _count(key, error, response)
            return response

    return view


@csrf_exempt
def unknown_path(request: HttpRequest, path: str) -> HttpResponse:
    """Return the error for every other path: the SDK has more operations than this API serves."""
    return refusal(NotServed(f"{request.method} /{path} is no operation that is served here"))


NO_KEY = AccessKey(name="nobody", tenant="", may_read=False, may_write=False)
"""The caller of open operations."""


def _check_scope(key: AccessKey, operation: Operation) -> None:
    if not key.may_read:
        raise ScopeMissing(f"the access key lacks the scope {SCOPE_READ_CATALOG}")
    if operation.writes and not key.may_write:
        raise ScopeMissing(f"the access key may only read: it lacks the scope {SCOPE_WRITE_CATALOG}")


def _other_method(request: HttpRequest, operations: Mapping[str, Operation]) -> HttpResponse:
    response = answer({"message": f"{request.method} is not served here"}, 405)
    response.headers["Allow"] = ", ".join(sorted(operations))
    return response


def _count(key: AccessKey | None, error: Exception, response: HttpResponse) -> None:
    if key is None or response.status_code not in WRONG:
        return
    known = error.code if isinstance(error, LithifyError) else None
    code = known or (str(error.get_codes()) if isinstance(error, APIException) else "request_refused")
    try:
        count_refused_requests([(code, str(error))], actor=key.actor)
    except DatabaseError as problem:
        log.warning("refusal_not_counted code=%s error=%s", code, problem)
