"""The root of every error that Lithify raises on purpose."""

from __future__ import annotations


class LithifyError(Exception):
    """Something went wrong in a way that Lithify knows and names.

    ``code`` is stable and machine readable; ``retryable`` says whether the same call can succeed later
    without anybody changing anything.
    """

    code = "lithify_error"
    retryable = False
