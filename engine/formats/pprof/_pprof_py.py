"""Reference implementation of the pprof parser in pure Python, with a speed of some MB/s.

It defines the behaviour of the compiled parser:

1. Known fields with a wrong wire type, group wire types, field number 0 and varints beyond 64 bits are rejected;
   unknown fields are skipped. Repeated integers are packed or not.
2. Of a singular field the last occurrence counts; value types are merged field by field.
3. The offset of an error is that of the invalid varint (key, value or length).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from engine.core.errors import BadProfile, LimitExceeded, Truncated
from engine.formats.pprof.pprof_model import Functions, Locations, Mappings, Profile, Samples

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
VARINT_BYTES_MAX = 10
ITEMS_PER_ENTRY = 8
"""Maximum number of location ids, and of values, per allowed sample."""
FIELD_NUMBER_MAX = (1 << 29) - 1
UINT64_MASK = (1 << 64) - 1

Span = tuple[int, int]
"""Start and end of a message or string inside the input."""
Field = tuple[int, int, int, int, int]
"""Field number, wire type, value (of a varint) or start (of bytes), end, offset of the key."""


def parse_message(data: bytes, entries_max: int) -> Profile:
    """Return the profile of an uncompressed pprof message with at most ``entries_max`` entries per table.

    Raises BadProfile, Truncated or LimitExceeded.
    """
    return _Parser(data, entries_max).parse()


class _Parser:
    """Parses one input; its lists grow in the order of the file and are converted to columns at the end."""

    def __init__(self, data: bytes, entries_max: int) -> None:
        self.data = data
        self.entries_max = entries_max
        self.profile = Profile()
        self.samples = _Lists(_SAMPLE_LISTS, starts=("location_starts", "value_starts", "label_starts"))
        self.mappings = _Lists(_MAPPING_LISTS)
        self.locations = _Lists(_LOCATION_LISTS, starts=("line_starts",))
        self.functions = _Lists(_FUNCTION_LISTS)

    def parse(self) -> Profile:
        for number, wire, value, end, key in self.fields((0, len(self.data))):
            if number in _TOP_MESSAGES:
                self.expect(wire, BYTES, key, number)
                _TOP_MESSAGES[number](self, (value, end), key)
            elif number in _TOP_INTEGERS:
                self.expect(wire, VARINT, key, number)
                setattr(self.profile, _TOP_INTEGERS[number], _signed(value))
            elif number == 13:
                self.repeated(wire, (value, end), key, self.profile.comments, self.entries_max)
        self.profile.comments = [_signed(one) for one in self.profile.comments]
        self.profile.samples = Samples(**self.samples.columns())
        self.profile.mappings = Mappings(**self.mappings.columns())
        self.profile.locations = Locations(**self.locations.columns())
        self.profile.functions = Functions(**self.functions.columns())
        return self.profile

    def sample_type(self, span: Span, key: int) -> None:
        self.profile.sample_types.append(self.value_type(span, (0, 0)))
        self.limit(len(self.profile.sample_types), key)

    def period_type(self, span: Span, _key: int) -> None:
        self.profile.period_type = self.value_type(span, self.profile.period_type)

    def value_type(self, span: Span, before: tuple[int, int]) -> tuple[int, int]:
        values = self.integers(span, {1: before[0] & UINT64_MASK, 2: before[1] & UINT64_MASK})
        return _signed(values[1]), _signed(values[2])

    def sample(self, span: Span, key: int) -> None:
        lists = self.samples
        for number, wire, value, end, field_key in self.fields(span):
            if number == 1:
                self.repeated(wire, (value, end), field_key, lists["location_ids"], ITEMS_PER_ENTRY * self.entries_max)
            elif number == 2:
                self.repeated(wire, (value, end), field_key, lists["values"], ITEMS_PER_ENTRY * self.entries_max)
            elif number == 3:
                self.expect(wire, BYTES, field_key, number)
                label = self.integers((value, end), {1: 0, 2: 0, 3: 0, 4: 0})
                lists.append_row(_LABEL_LISTS, list(label.values()))
                self.limit(len(lists["label_keys"]), field_key)
        lists["location_starts"].append(len(lists["location_ids"]))
        lists["value_starts"].append(len(lists["values"]))
        lists["label_starts"].append(len(lists["label_keys"]))
        self.limit(len(lists["location_starts"]) - 1, key)

    def mapping(self, span: Span, key: int) -> None:
        values = self.integers(span, dict.fromkeys(range(1, 11), 0))
        flags = 8 * bool(values[7]) + 4 * bool(values[8]) + 2 * bool(values[9]) + bool(values[10])
        self.mappings.append_row(_MAPPING_LISTS, [*(values[number] for number in range(1, 7)), flags])
        self.limit(len(self.mappings["ids"]), key)

    def location(self, span: Span, key: int) -> None:
        values = {1: 0, 2: 0, 3: 0, 5: 0}
        for number, wire, value, end, field_key in self.fields(span):
            if number == 4:
                self.expect(wire, BYTES, field_key, number)
                line = self.integers((value, end), {1: 0, 2: 0})
                self.locations.append_row(_LINE_LISTS, list(line.values()))
                self.limit(len(self.locations["line_numbers"]), field_key)
            elif number in values:
                self.expect(wire, VARINT, field_key, number)
                values[number] = value
        row = [values[1], values[2], values[3], int(values[5] != 0)]
        self.locations.append_row(_LOCATION_LISTS[:4], row)
        self.locations["line_starts"].append(len(self.locations["line_numbers"]))
        self.limit(len(self.locations["ids"]), key)

    def function(self, span: Span, key: int) -> None:
        values = self.integers(span, dict.fromkeys(range(1, 6), 0))
        self.functions.append_row(_FUNCTION_LISTS, list(values.values()))
        self.limit(len(self.functions["ids"]), key)

    def string(self, span: Span, key: int) -> None:
        self.profile.strings.append(self.data[span[0] : span[1]])
        self.limit(len(self.profile.strings), key)

    def integers(self, span: Span, values: dict[int, int]) -> dict[int, int]:
        """Return ``values`` updated from a message whose known fields are singular integers."""
        for number, wire, value, _, key in self.fields(span):
            if number in values:
                self.expect(wire, VARINT, key, number)
                values[number] = value
        return values

    def repeated(self, wire: int, span: Span, key: int, found: list[int], items_max: int) -> None:
        """Append the integers of a repeated field, packed or not, as unsigned numbers."""
        at, end = span
        if wire == VARINT:
            found.append(at)
        else:
            self.expect(wire, BYTES, key, self.data[key] >> 3)
            while at < end and len(found) <= items_max:
                one, at = self.varint(at, end)
                found.append(one)
        if len(found) > items_max:
            self.too_many(items_max, key)

    def fields(self, span: Span) -> Iterator[Field]:
        """Yield the fields of the message at ``span``; every length is checked against the end of the message."""
        at, end = span
        while at < end:
            key_at = at
            key, at = self.varint(at, end)
            number, wire = key >> 3, key & 7
            if not 0 < number <= FIELD_NUMBER_MAX:
                raise BadProfile("pprof", key_at, f"field number {number} is invalid; is this a pprof profile?")
            if wire == VARINT:
                value, at = self.varint(at, end)
                yield number, wire, value, at, key_at
            elif wire == BYTES:
                length_at = at
                length, at = self.varint(at, end)
                if length > end - at:
                    raise Truncated("pprof", length_at, f"a field has a length of {length} bytes, {end - at} are left")
                yield number, wire, at, at + length, key_at
                at += length
            elif wire in (FIXED64, FIXED32):
                width = 8 if wire == FIXED64 else 4
                if width > end - at:
                    raise Truncated("pprof", at, f"a field needs {width} bytes, {end - at} are left")
                yield number, wire, at, at + width, key_at
                at += width
            else:
                raise BadProfile("pprof", key_at, f"wire type {wire} is invalid; is this a pprof profile?")

    def varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for count in range(VARINT_BYTES_MAX):
            if at + count >= end:
                raise Truncated("pprof", at, "the message ends inside a varint")
            byte = self.data[at + count]
            value |= (byte & 0x7F) << (7 * count)
            if byte < 0x80:
                if value > UINT64_MASK:
                    break
                return value, at + count + 1
        raise BadProfile("pprof", at, "a varint exceeds 64 bits; is this a pprof profile?")

    def expect(self, wire: int, expected: int, key: int, number: int) -> None:
        if wire != expected:
            reason = f"field {number} has wire type {wire} instead of {expected}; is this a pprof profile?"
            raise BadProfile("pprof", key, reason)

    def limit(self, count: int, key: int) -> None:
        if count > self.entries_max:
            self.too_many(self.entries_max, key)

    def too_many(self, items_max: int, key: int) -> None:
        raise LimitExceeded("pprof", key, f"a table has more than {items_max} entries; send shorter profiles")


class _Lists(dict[str, list[int]]):
    """Named lists of unsigned integers to be converted to columns; the ``starts`` of ragged tables begin with 0."""

    def __init__(self, names: tuple[str, ...], starts: tuple[str, ...] = ()) -> None:
        super().__init__({name: [] for name in names} | {name: [0] for name in starts})

    def append_row(self, names: tuple[str, ...], row: list[int]) -> None:
        for name, value in zip(names, row, strict=True):
            self[name].append(value)

    def columns(self) -> dict[str, Any]:
        return {name: _column(values, _COLUMN_TYPES.get(name, np.int64)) for name, values in self.items()}


def _column(values: list[int], kind: type[np.generic]) -> Any:
    unsigned = np.array(values, np.uint64)
    return unsigned.view(np.int64) if kind is np.int64 else unsigned.astype(kind)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


_LABEL_LISTS = ("label_keys", "label_strings", "label_numbers", "label_units")
_SAMPLE_LISTS = ("location_ids", "values", *_LABEL_LISTS)
_LINE_LISTS = ("line_function_ids", "line_numbers")
_LOCATION_LISTS = ("ids", "mapping_ids", "addresses", "folded", *_LINE_LISTS)
_MAPPING_LISTS = ("ids", "memory_starts", "memory_limits", "file_offsets", "filenames", "build_ids", "flags")
_FUNCTION_LISTS = ("ids", "names", "system_names", "filenames", "start_lines")
_UNSIGNED = ("ids", "location_ids", "mapping_ids", "addresses", "line_function_ids")
_COLUMN_TYPES: dict[str, type[np.generic]] = {
    **dict.fromkeys((*_UNSIGNED, "memory_starts", "memory_limits", "file_offsets"), np.uint64),
    **dict.fromkeys(("folded", "flags"), np.uint8),
}
_TOP_MESSAGES: dict[int, Callable[[_Parser, Span, int], None]] = {
    1: _Parser.sample_type,
    2: _Parser.sample,
    3: _Parser.mapping,
    4: _Parser.location,
    5: _Parser.function,
    6: _Parser.string,
    11: _Parser.period_type,
}
_TOP_INTEGERS = {
    7: "drop_frames",
    8: "keep_frames",
    9: "time_ns",
    10: "duration_ns",
    12: "period",
    14: "default_sample_type",
}
