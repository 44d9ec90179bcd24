"""Errors of the index."""

from __future__ import annotations

from engine.core.errors import LithifyError


class BlockRefused(LithifyError):
    """A block cannot be registered: its metadata is impossible, or its id is older than the ledger remembers.

    ``code`` says what is wrong: ``bad_id``, ``bad_shard``, ``bad_level``, ``bad_tenant``, ``bad_size``, ``bad_key``,
    ``bad_name``, ``bad_time``, ``bad_dataset``, ``bad_metadata``, ``id_too_old``, ``id_in_future``,
    ``data_in_future``, ``tenant_not_allowed`` or ``object_missing``.
    """

    code = "block_refused"

    def __init__(self, message: str, code: str = "block_refused") -> None:
        super().__init__(message)
        self.code = code


class IndexMoved(LithifyError):
    """Blocks were removed, or their data was hidden, while an answer was read: begin again with its first page."""

    code = "index_moved"
    retryable = True


class InvalidBatch(LithifyError):
    """A list of blocks cannot be read at all, or is longer than one call may be; nothing of it was looked at."""

    code = "invalid_batch"


class InvalidIndexQuery(LithifyError):
    """A question to the index makes no sense: no tenant, no time range, or a matcher that cannot be read."""

    code = "invalid_query"


class LetterGone(LithifyError):
    """There is no dead letter of this name that still waits."""

    code = "dead_letter_gone"


class IndexBusy(LithifyError):
    """Too many others write the same part of the index at the same time; send it again."""

    code = "index_busy"
    retryable = True


class InvalidRule(LithifyError):
    """A retention rule, hold or delete request makes no sense: no such tenant name, time or number of days."""

    code = "invalid_rule"


class TenantBusy(LithifyError):
    """The tenant is on hold, or its data is being deleted: one excludes the other."""

    code = "tenant_busy"


class SweepRefused(LithifyError):
    """So many objects are unknown to the index that deleting them would be the greater damage."""

    code = "sweep_refused"
