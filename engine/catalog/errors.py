"""What the catalog's engine raises. Damaged files are ``BadObject``: ``object_name`` is the key of the file."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import LithifyError


class InvalidEntryKey(LithifyError):
    """No entry can have this key; the message says why."""

    code = "invalid_entry_key"


class InvalidRecord(LithifyError):
    """An entry or staged record is not one the catalog can hold; the message says why."""

    code = "invalid_record"


class UnsortedKeys(LithifyError):
    """Entries or ranges do not strictly ascend where they are to be written; nothing of them was published."""

    code = "unsorted_keys"


class MergeConflict(LithifyError):
    """Source and destination changed the same keys differently: ``keys`` holds the first of ``count`` conflicts."""

    code = "merge_conflict"

    def __init__(self, keys: Sequence[bytes], count: int) -> None:
        super().__init__(tuple(keys), count)
        self.keys = tuple(keys)
        self.count = count

    def __str__(self) -> str:
        first = ", ".join(repr(key.decode("utf-8", "backslashreplace")) for key in self.keys[:3])
        return f"{self.count} keys were changed on both sides, the first: {first}"
