"""Responses in the form that the SDK reads: JSON, pages with a continuation key, errors as ``{"message": …}``.

The SDK chooses the exception to raise by the status alone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from django.http import HttpResponse
from rest_framework.exceptions import APIException, Throttled

from engine.core.errors import BadObject, LithifyError
from engine.storage import StorageError
from webadmin.lanes.catalog.api.errors import RangeRefused

log = logging.getLogger(__name__)

JSON = "application/json"
PAGE_MAX = 1_000
STATUSES = {
    "request_refused": 400,
    "invalid_message": 400,
    "invalid_entry_key": 400,
    "invalid_record": 400,
    "catalog_refused": 400,
    "dirty_branch": 400,
    "no_changes": 400,
    "credential_refused": 401,
    "scope_missing": 403,
    "repository_read_only": 403,
    "branch_protected": 403,
    "not_found": 404,
    "not_served": 405,
    "name_taken": 409,
    "merge_conflict": 409,
    "import_ended": 409,
    "data_missing": 410,
    "precondition_failed": 412,
    "body_too_large": 413,
    "range_refused": 416,
    "branch_busy": 423,
    "imports_busy": 429,
    "files_condemned": 503,
}
"""HTTP status by error code; codes that are not listed are server errors (500) or errors of the object store (503)."""

WRONG = {400, 401, 403, 405, 413, 415}
"""Statuses of invalid requests; the other client errors are part of the normal use of a catalog."""


def answer(document: Any, status: int = 200) -> HttpResponse:
    """Return a response with a JSON document."""
    return HttpResponse(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"), JSON, status)


def nothing(status: int = 204) -> HttpResponse:
    """Return an empty response."""
    return HttpResponse(status=status)


def page(results: Sequence[dict[str, Any]], following: str | None) -> HttpResponse:
    """Return one page of a listing; ``following`` is the key after which the next page starts, None at the end."""
    pagination = {
        "has_more": following is not None,
        "next_offset": following or "",
        "results": len(results),
        "max_per_page": PAGE_MAX,
    }
    return answer({"pagination": pagination, "results": list(results)})


def refusal(error: Exception) -> HttpResponse:
    """Return the error response for an exception."""
    if isinstance(error, APIException):
        response = answer({"message": str(error.detail)}, error.status_code)
        if isinstance(error, Throttled):
            response.headers["Retry-After"] = str(int(error.wait or 1))  # type: ignore[attr-defined]  # not in the stub
        return response
    if not isinstance(error, LithifyError):
        log.exception("catalog_request_failed", exc_info=error)
        return answer({"message": "the server failed; its log says why"}, 500)
    status = status_of(error)
    if status >= 500:
        log.error("catalog_request_failed code=%s message=%s", error.code, error)
    response = answer(_told(error, status), status)
    if error.retryable:
        response.headers["Retry-After"] = "1"
    if isinstance(error, RangeRefused):
        response.headers["Content-Range"] = f"bytes */{error.size}"
    if status == 401:
        response.headers["WWW-Authenticate"] = 'Basic realm="access key"'
    return response


def status_of(error: LithifyError) -> int:
    """Return the HTTP status of a Lithify error."""
    if isinstance(error, BadObject):
        return 500
    return STATUSES.get(error.code, 503 if isinstance(error, StorageError) and error.retryable else 500)


def _told(error: LithifyError, status: int) -> dict[str, Any]:
    # The SDK parses the response of a conflicting merge as a merge result, in which ``reference`` is required.
    return {"message": str(error)} | ({"reference": ""} if error.code == "merge_conflict" and status == 409 else {})
