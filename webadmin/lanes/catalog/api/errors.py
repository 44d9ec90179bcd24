"""Errors of the API itself, in addition to those of the catalog's services."""

from __future__ import annotations

from engine.core.errors import LithifyError


class RequestRefused(LithifyError):
    """The request is invalid; the message names what is wrong."""

    code = "request_refused"


class NotServed(LithifyError):
    """An operation or option that this API does not serve."""

    code = "not_served"


class BodyRefused(LithifyError):
    """The body is larger than allowed, or shorter than declared."""

    code = "body_too_large"


class RangeRefused(LithifyError):
    """The requested range is outside of the object; ``size`` is its length."""

    code = "range_refused"

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size

    def __str__(self) -> str:
        return f"the range lies behind the end of the object, which has {self.size} bytes"


class DataMissing(LithifyError):
    """The catalog has the entry but the object store has no such object; the message names it."""

    code = "data_missing"


class ImportMissing(LithifyError):
    """The branch has no import of this id."""

    code = "not_found"


class ImportEnded(LithifyError):
    """The import has already ended."""

    code = "import_ended"


class ImportCancelled(LithifyError):
    """The import was cancelled; nothing was published."""

    code = "import_cancelled"


class ImportsBusy(LithifyError):
    """The limit of concurrent imports is reached."""

    code = "imports_busy"
    retryable = True
