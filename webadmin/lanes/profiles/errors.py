"""Errors of the index."""

from __future__ import annotations

from engine.core.errors import LithifyError


class BlockRefused(LithifyError):
    """A block cannot be registered: its metadata is invalid, or its id is older than the ledger.

    ``code`` is the reason: ``bad_id``, ``bad_shard``, ``bad_level``, ``bad_tenant``, ``bad_size``, ``bad_key``,
    ``bad_name``, ``bad_time``, ``bad_dataset``, ``bad_metadata``, ``id_too_old``, ``id_in_future``, ``data_in_future``,
    ``tenant_not_allowed`` or ``object_missing``.
    """

    code = "block_refused"

    def __init__(self, message: str, code: str = "block_refused") -> None:
        super().__init__(message)
        self.code = code


class IndexMoved(LithifyError):
    """Blocks were removed, or their data was hidden, while an answer was read: start again with the first page."""

    code = "index_moved"
    retryable = True


class InvalidBatch(LithifyError):
    """A list of blocks cannot be decoded, or is too long; none of its blocks was processed."""

    code = "invalid_batch"


class InvalidIndexQuery(LithifyError):
    """The query is invalid: no tenant, no time range, or an invalid matcher."""

    code = "invalid_query"


class LetterGone(LithifyError):
    """No dead letter of this name is waiting."""

    code = "dead_letter_gone"


class IndexBusy(LithifyError):
    """Too many concurrent writes to the same part of the index; send the request again."""

    code = "index_busy"
    retryable = True


class InvalidRule(LithifyError):
    """A retention rule, hold or delete request is invalid: bad tenant name, time or number of days."""

    code = "invalid_rule"


class TenantBusy(LithifyError):
    """The tenant is on hold, or its data is being deleted: the two exclude each other."""

    code = "tenant_busy"


class SweepRefused(LithifyError):
    """So many objects are unknown to the index that the index is probably incomplete; nothing was deleted."""

    code = "sweep_refused"
