"""Builder of a ``Profile`` from stacks of named frames.

Equal frames share a location, equal functions share an entry, and samples with equal stack and labels are summed. The
profile has one mapping, which is symbolised.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from engine.formats.pprof.pprof_model import (
    MAPPING_HAS_FILENAMES,
    MAPPING_HAS_FUNCTIONS,
    MAPPING_HAS_LINE_NUMBERS,
    Functions,
    Integers,
    Locations,
    Mappings,
    Profile,
    Samples,
)

ValueType = tuple[str, str]
"""Type and unit, such as ("cpu", "nanoseconds")."""


class Frame(NamedTuple):
    """A frame of a stack: the function, its file and first line, and the current line."""

    function: str
    filename: str
    start_line: int
    line: int


class ProfileBuilder:
    """Collects samples of the given types; ``profile`` returns the profile of those added so far."""

    def __init__(
        self, sample_types: Sequence[ValueType], *, period_type: ValueType, period: int, program: str = ""
    ) -> None:
        self._strings: dict[str, int] = {"": 0}
        self._program = self._string(program)
        self._sample_types = [self._value_type(one) for one in sample_types]
        self._period_type = self._value_type(period_type)
        self._period = period
        self._functions: dict[tuple[int, int, int], int] = {}
        self._locations: dict[Frame, int] = {}
        self._location_lines: list[tuple[int, int]] = []
        self._samples: dict[tuple[tuple[int, ...], tuple[tuple[int, int], ...]], list[int]] = {}

    def __len__(self) -> int:
        """Return the number of distinct samples."""
        return len(self._samples)

    def add(self, stack: Iterable[Frame], values: Sequence[int], labels: Iterable[tuple[str, str]] = ()) -> None:
        """Add one value per sample type to the sample of a stack (leaf first) and string labels."""
        if len(values) != len(self._sample_types):
            raise ValueError(f"{len(values)} values for {len(self._sample_types)} sample types")
        refs = tuple(self._location(frame) for frame in stack)
        label_refs = tuple((self._string(key), self._string(value)) for key, value in labels)
        totals = self._samples.setdefault((refs, label_refs), [0] * len(values))
        for position, value in enumerate(values):
            totals[position] += value

    def profile(self, *, time_ns: int, duration_ns: int) -> Profile:
        """Return the profile of the window that started at ``time_ns`` (Unix nanoseconds)."""
        return Profile(
            samples=self._sample_columns(),
            mappings=self._mapping_columns(),
            locations=self._location_columns(),
            functions=self._function_columns(),
            strings=[string.encode("utf-8", "replace") for string in self._strings],
            sample_types=list(self._sample_types),
            period_type=self._period_type,
            period=self._period,
            time_ns=time_ns,
            duration_ns=duration_ns,
        )

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _value_type(self, value_type: ValueType) -> tuple[int, int]:
        return self._string(value_type[0]), self._string(value_type[1])

    def _location(self, frame: Frame) -> int:
        known = self._locations.get(frame)
        if known is None:
            key = (self._string(frame.function), self._string(frame.filename), frame.start_line)
            function = self._functions.setdefault(key, len(self._functions) + 1)
            self._location_lines.append((function, frame.line))
            known = self._locations[frame] = len(self._location_lines)
        return known

    def _sample_columns(self) -> Samples:
        keys = list(self._samples)
        labels = [label for _, own in keys for label in own]
        zeros = np.zeros(len(labels), np.int64)
        return Samples(
            location_starts=_starts(len(stack) for stack, _ in keys),
            location_ids=np.array([ref for stack, _ in keys for ref in stack], np.uint64),
            value_starts=_starts(len(self._sample_types) for _ in keys),
            values=np.array([value for values in self._samples.values() for value in values], np.int64),
            label_starts=_starts(len(own) for _, own in keys),
            label_keys=np.array([key for key, _ in labels], np.int64),
            label_strings=np.array([value for _, value in labels], np.int64),
            label_numbers=zeros,
            label_units=zeros.copy(),
        )

    def _mapping_columns(self) -> Mappings:
        zero = np.zeros(1, np.uint64)
        flags = MAPPING_HAS_FUNCTIONS | MAPPING_HAS_FILENAMES | MAPPING_HAS_LINE_NUMBERS
        return Mappings(
            ids=np.ones(1, np.uint64),
            memory_starts=zero,
            memory_limits=zero.copy(),
            file_offsets=zero.copy(),
            filenames=np.array([self._program], np.int64),
            build_ids=np.zeros(1, np.int64),
            flags=np.array([flags], np.uint8),
        )

    def _location_columns(self) -> Locations:
        count = len(self._location_lines)
        return Locations(
            ids=np.arange(1, count + 1, dtype=np.uint64),
            mapping_ids=np.ones(count, np.uint64),
            addresses=np.zeros(count, np.uint64),
            folded=np.zeros(count, np.uint8),
            line_starts=np.arange(count + 1, dtype=np.int64),
            line_function_ids=np.array([function for function, _ in self._location_lines], np.uint64),
            line_numbers=np.array([line for _, line in self._location_lines], np.int64),
        )

    def _function_columns(self) -> Functions:
        names = np.array([name for name, _, _ in self._functions], np.int64)
        return Functions(
            ids=np.arange(1, len(self._functions) + 1, dtype=np.uint64),
            names=names,
            system_names=names.copy(),
            filenames=np.array([filename for _, filename, _ in self._functions], np.int64),
            start_lines=np.array([line for _, _, line in self._functions], np.int64),
        )


def _starts(counts: Iterable[int]) -> Integers:
    return np.cumsum([0, *counts], dtype=np.int64)
