"""What merging states of a catalog raises."""

from __future__ import annotations

from collections.abc import Sequence

from engine.core.errors import LithifyError


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
