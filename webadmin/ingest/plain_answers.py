"""Error responses of the plain HTTP endpoints: the status of a push that was not stored."""

from __future__ import annotations

import json

from django.http import HttpResponse

from engine.ingest.push import PROFILE_SIZE
from webadmin.base.push_rejected import PushRejected

BODY_SIZE = "body_size_limit"
STATUSES = {
    "unauthenticated": 401,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "unavailable": 503,
    "deadline_exceeded": 504,
    "unimplemented": 501,
}
"""Status by code; that of ``invalid_argument`` depends on endpoint and content."""
_INVALID_QUERY = {"bad_name", "unknown_profile_type"}
_ABOUT_THE_PROFILE = {PROFILE_SIZE, "malformed_profile", "malformed_request", "unsupported_format", "no_profiles"}


def ingest_status(error: PushRejected, *, is_pprof: bool) -> int:
    """Return the status for ``/ingest`` (sheet, section 3.10): an invalid profile is 400 as text and 422 as pprof."""
    if error.code != "invalid_argument":
        return STATUSES[error.code]
    if error.reason == BODY_SIZE:
        return 413
    if error.reason in _INVALID_QUERY:
        return 400
    return 422 if is_pprof or error.reason in _ABOUT_THE_PROFILE else 400


def otlp_status(error: PushRejected) -> int:
    """Return the status for the OTLP endpoint (sheet, section 4)."""
    if error.code == "invalid_argument":
        return 413 if error.reason == BODY_SIZE else 400
    return STATUSES[error.code]


def json_error(error: PushRejected, status: int) -> HttpResponse:
    """Return an error response in the JSON format of Connect."""
    body = json.dumps({"code": error.code, "message": error.message})
    return with_retry(HttpResponse(body, status=status, content_type="application/json"))


def text_error(error: PushRejected, status: int) -> HttpResponse:
    """Return an error response in plain text."""
    return with_retry(HttpResponse(error.message, status=status, content_type="text/plain; charset=utf-8"))


def with_retry(response: HttpResponse) -> HttpResponse:
    """Add ``Retry-After`` or ``WWW-Authenticate`` to statuses where they apply."""
    if response.status_code in {429, 503}:
        response["Retry-After"] = "1"
    if response.status_code == 401:
        response["WWW-Authenticate"] = 'Basic realm="profiles"'
    return response
