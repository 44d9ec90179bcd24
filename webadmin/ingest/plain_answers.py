"""Errors of the plain HTTP doors: which status a push that was not taken gets."""

from __future__ import annotations

import json

from django.http import HttpResponse

from engine.ingest.push import PROFILE_SIZE
from webadmin.base.not_taken import NotTaken

BODY_SIZE = "body_size_limit"
STATUSES = {
    "unauthenticated": 401,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "unavailable": 503,
    "deadline_exceeded": 504,
    "unimplemented": 501,
}
"""By code; ``invalid_argument`` depends on the door and on what it is about."""
_ASKED_WRONGLY = {"bad_name", "unknown_profile_type"}
_ABOUT_THE_PROFILE = {PROFILE_SIZE, "malformed_profile", "malformed_request", "unsupported_format", "no_profiles"}


def ingest_status(error: NotTaken, *, is_pprof: bool) -> int:
    """Return the status at ``/ingest`` (sheet, section 3.10): the same bad profile is 400 as text and 422 as pprof."""
    if error.code != "invalid_argument":
        return STATUSES[error.code]
    if error.reason == BODY_SIZE:
        return 413
    if error.reason in _ASKED_WRONGLY:
        return 400
    return 422 if is_pprof or error.reason in _ABOUT_THE_PROFILE else 400


def otlp_status(error: NotTaken) -> int:
    """Return the status at the OTLP door (sheet, section 4)."""
    if error.code == "invalid_argument":
        return 413 if error.reason == BODY_SIZE else 400
    return STATUSES[error.code]


def json_error(error: NotTaken, status: int) -> HttpResponse:
    """Return an error as Connect clients read it."""
    body = json.dumps({"code": error.code, "message": error.message})
    return with_retry(HttpResponse(body, status=status, content_type="application/json"))


def text_error(error: NotTaken, status: int) -> HttpResponse:
    """Return an error in plain text."""
    return with_retry(HttpResponse(error.message, status=status, content_type="text/plain; charset=utf-8"))


def with_retry(response: HttpResponse) -> HttpResponse:
    """Say when to come again, and how to prove oneself, where that may help."""
    if response.status_code in {429, 503}:
        response["Retry-After"] = "1"
    if response.status_code == 401:
        response["WWW-Authenticate"] = 'Basic realm="profiles"'
    return response
