"""Convert every error into one form of response: ``{"code": …, "message": …}`` and the matching status.

Rejected requests of an authenticated sender are counted where operators see them. Those of others are only logged, so
that unauthenticated requests cause no writes.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.views.defaults import server_error
from rest_framework import exceptions, serializers
from rest_framework.response import Response
from rest_framework.views import exception_handler

from engine.core.errors import LithifyError
from webadmin.base.access.models import WorkerCredential
from webadmin.base.access.refusals import count_refused_requests
from webadmin.base.access.scopes import is_operator
from webadmin.base.access.tenant_places import without_server_paths

log = logging.getLogger(__name__)


class ErrorSerializer(serializers.Serializer[Any]):
    """Every error answer."""

    code = serializers.CharField(help_text="stable and machine readable")
    message = serializers.CharField(help_text="for people")


STATUSES = {
    "invalid_message": 400,
    "limit_refused": 400,
    "policy_refused": 400,
    "scope_refused": 400,
    "duration_refused": 400,
    "filter_empty": 400,
    "credential_refused": 401,
    "scope_missing": 403,
    "name_taken": 409,
    "unknown_credential": 404,
    "credential_change_refused": 400,
    "too_many_names": 409,
    "not_found": 404,
    "schedule_busy": 503,
    "invalid_batch": 400,
    "invalid_query": 400,
    "query_too_large": 413,
    "tenant_not_allowed": 403,
    "invalid_rule": 400,
    "tenant_busy": 409,
    "push_limit_refused": 400,
    "placement_limits_refused": 400,
    "pin_refused": 400,
    "ring_refused": 400,
    "empty_ring": 409,
    "index_busy": 503,
    "unsafe_database": 503,
    "index_moved": 409,
    "table_refused": 400,
    "foreign_table": 409,
    "folder_unchecked": 503,
    "registration_refused": 409,
    "interval_refused": 400,
    "invalid_store_url": 400,
    "storage_error": 503,
}
"""Status by error code; a LithifyError that is not listed is an internal error (500)."""

RETRY_SECONDS = 5
"""After this many seconds a browser may retry a page."""
DATABASE_AWAY_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>The database does not answer</title></head>
<body><h1>The database does not answer</h1>
<p>Pushes are stored meanwhile, and nothing that was acknowledged is lost. Check the database, then load this page
again.</p></body></html>
"""

REFUSED = {400, 401, 403, 409, 413, 415}
"""Statuses of faulty requests, which are counted; 404 is a normal answer."""


def answer_error(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the response for an error: the exception handler of Django REST framework."""
    response = _answer_to(error, context)
    if response is None or isinstance(error, OperationalError | InterfaceError):
        return response  # the sender may be unknown, and asking for it would raise again
    sender = getattr(context.get("request"), "user", None)
    if response.status_code in REFUSED:
        _count(sender, response)
    if "message" in response.data and not (isinstance(sender, WorkerCredential) and is_operator(sender)):
        tenant = (context.get("kwargs") or {}).get("tenant", "")
        response.data["message"] = without_server_paths(response.data["message"], tenant)
    return response


def answer_server_error(request: HttpRequest) -> HttpResponse:
    """Return the error page: 503 if the database does not answer. It must not query the database."""
    error = sys.exc_info()[1]
    if not isinstance(error, OperationalError | InterfaceError):
        return server_error(request)
    log.error("database_unavailable error=%s", error)
    return HttpResponse(DATABASE_AWAY_PAGE, status=503, headers={"Retry-After": str(RETRY_SECONDS)})


def _count(sender: object, response: Response) -> None:
    if not isinstance(sender, WorkerCredential):
        return
    refused = (response.data["code"], response.data["message"])
    try:
        count_refused_requests([refused], actor=f"credential:{sender.name}")
    except DatabaseError as problem:
        log.warning("refusal_not_counted code=%s error=%s", refused[0], problem)


def _answer_to(error: Exception, context: dict[str, Any]) -> Response | None:
    if isinstance(error, LithifyError):
        return _answer(STATUSES.get(error.code, 500), error.code, str(error), retry=error.retryable)
    if isinstance(error, OperationalError | InterfaceError):
        log.error("database_unavailable error=%s", error)
        return _answer(503, "database_unavailable", "the database does not answer; try again", retry=True)
    if isinstance(error, Http404):
        error = exceptions.NotFound()
    elif isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    response = exception_handler(error, context)
    if response is None or not isinstance(error, exceptions.APIException):
        return response
    codes, detail = error.get_codes(), error.detail
    code = codes if isinstance(codes, str) else "invalid_request"
    message = str(detail) if isinstance(detail, str) else repr(detail)
    response.data = {"code": code, "message": message}
    return response


def _answer(status: int, code: str, message: str, *, retry: bool) -> Response:
    if status == 500:
        log.error("request_failed code=%s message=%s", code, message)
    headers = {"Retry-After": "1"} if retry else {}
    return Response({"code": code, "message": message}, status=status, headers=headers)
