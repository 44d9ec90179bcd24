"""What the catalog's engine raises. Damaged files are ``BadObject``: ``object_name`` is the key of the file."""

from __future__ import annotations

from engine.core.errors import LithifyError


class InvalidEntryKey(LithifyError):
    """No entry can have this key; the message says why."""

    code = "invalid_entry_key"


class InvalidRecord(LithifyError):
    """An entry or staged record is not one the catalog can hold; the message says why."""

    code = "invalid_record"


class UnsortedKeys(LithifyError):
    """Entries or ranges do not strictly ascend where they are to be written; nothing of them was published."""

    code = "unsorted_keys"
