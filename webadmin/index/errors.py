"""Errors of the index."""

from __future__ import annotations

from engine.errors import LithifyError


class BlockRefused(LithifyError):
    """A block cannot be registered: its metadata is impossible, or its id is older than the ledger remembers."""

    code = "block_refused"


class SourcesChanged(LithifyError):
    """A job's sources are no longer all live and owned by it; nothing was replaced."""

    code = "sources_changed"
    retryable = True
