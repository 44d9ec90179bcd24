"""A compact map of all accepted ids: ids older than an hour take only the bytes of the ids.

Ids are ULIDs, which start with their time, and nearly all accesses are to recent ids. The ids with one prefix, about 17
minutes, form a *part*. Recent parts are dictionaries; when a new part begins, all but the newest ``YOUNG_PARTS`` are
packed into a sorted array. A late id is kept in a dictionary beside its packed part until the next packing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field

PREFIX_LETTERS = 6
ID_LETTERS = 26
YOUNG_PARTS = 4


@dataclass(slots=True)
class _Part:
    values: array[int]
    letters: bytes = b""
    young: dict[str, int] = field(default_factory=dict)

    def place(self, ulid: str) -> int:
        """Return the position of a packed id, -1 if there is none."""
        letters, key = self.letters, ulid.encode()
        low, high = 0, len(self.values)
        while low < high:
            middle = (low + high) // 2
            if letters[middle * ID_LETTERS : (middle + 1) * ID_LETTERS] < key:
                low = middle + 1
            else:
                high = middle
        return low if letters[low * ID_LETTERS : (low + 1) * ID_LETTERS] == key else -1

    def ids(self) -> list[str]:
        """Return all ids, packed ids first."""
        text = self.letters.decode()
        return [*(text[start : start + ID_LETTERS] for start in range(0, len(text), ID_LETTERS)), *self.young]

    def pack(self) -> None:
        entries = sorted(zip(self.ids(), [*self.values, *self.young.values()], strict=True))
        self.letters = "".join([ulid for ulid, _ in entries]).encode()
        self.values = array(self.values.typecode, [value for _, value in entries])
        self.young = {}


class IdBook(MutableMapping[str, int]):
    """A mapping from ULIDs to integers of the array type ``typecode``. Entries cannot be removed."""

    def __init__(self, typecode: str = "q") -> None:
        self._typecode = typecode
        self._parts: dict[str, _Part] = {}

    def __contains__(self, ulid: object) -> bool:
        assert isinstance(ulid, str), ulid
        part = self._parts.get(ulid[:PREFIX_LETTERS])
        return part is not None and (ulid in part.young or (part.letters != b"" and part.place(ulid) >= 0))

    def __getitem__(self, ulid: str) -> int:
        part = self._parts.get(ulid[:PREFIX_LETTERS])
        if part is not None and (found := part.young.get(ulid)) is not None:
            return found
        place = part.place(ulid) if part is not None else -1
        if part is None or place < 0:
            raise KeyError(ulid)
        return part.values[place]

    def __setitem__(self, ulid: str, value: int) -> None:
        part = self._parts.get(ulid[:PREFIX_LETTERS])
        if part is None:
            if len(ulid) != ID_LETTERS:
                raise ValueError(f"{ulid!r} is not a ULID")
            part = self._parts[ulid[:PREFIX_LETTERS]] = _Part(array(self._typecode))
            self._pack()
        if part.letters and (place := part.place(ulid)) >= 0:
            part.values[place] = value
        else:
            part.young[ulid] = value

    def __delitem__(self, ulid: str) -> None:
        raise NotImplementedError("accepted ids cannot be removed")

    def __len__(self) -> int:
        return sum(len(part.values) + len(part.young) for part in self._parts.values())

    def __iter__(self) -> Iterator[str]:
        return (ulid for prefix in sorted(self._parts) for ulid in self._parts[prefix].ids())

    def _pack(self) -> None:
        for prefix in sorted(self._parts)[:-YOUNG_PARTS]:
            if self._parts[prefix].young:
                self._parts[prefix].pack()
