"""Errors of catalog entries. Invalid files are ``BadObject``, whose ``object_name`` is the key of the file."""

from __future__ import annotations

from engine.core.errors import LithifyError


class InvalidEntryKey(LithifyError):
    """The key of an entry is invalid; the message gives the reason."""

    code = "invalid_entry_key"


class InvalidRecord(LithifyError):
    """An entry or staged record is invalid; the message gives the reason."""

    code = "invalid_record"


class UnsortedKeys(LithifyError):
    """Entries or ranges to be written do not strictly ascend; none of them was published."""

    code = "unsorted_keys"
