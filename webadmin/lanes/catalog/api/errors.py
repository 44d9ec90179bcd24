"""Errors of the API itself; those of the catalog's services come through it."""

from __future__ import annotations

from engine.core.errors import LithifyError


class RequestRefused(LithifyError):
    """The request is not one this API understands; the message names what is wrong."""

    code = "request_refused"


class NotServed(LithifyError):
    """An operation, or a wish in one, that this API does not serve."""

    code = "not_served"


class BodyRefused(LithifyError):
    """The body is larger than allowed, or ends before its end."""

    code = "body_too_large"


class RangeRefused(LithifyError):
    """The object has nothing at the range that was asked for; ``size`` is its length."""

    code = "range_refused"

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size

    def __str__(self) -> str:
        return f"the range lies behind the end of the object, which has {self.size} bytes"


class DataMissing(LithifyError):
    """The catalog has the object and the object store lost its bytes; the message names them."""

    code = "data_missing"


class ImportMissing(LithifyError):
    """The branch has no import of this id."""

    code = "not_found"


class ImportEnded(LithifyError):
    """The import has ended already."""

    code = "import_ended"


class ImportCancelled(LithifyError):
    """The import was cancelled; nothing of it was published."""

    code = "import_cancelled"


class ImportsBusy(LithifyError):
    """As many imports run as may run at a time."""

    code = "imports_busy"
    retryable = True
