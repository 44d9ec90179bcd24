"""A pprof profile as columns: one numpy array per field of a table, as profiles have tens of thousands of samples.

A *ragged* table (the locations of a sample, the lines of a location) is a flat column and a column ``starts`` with one
entry more than there are owners: owner ``i`` has the items ``starts[i]`` up to ``starts[i + 1]``.

The contents are not validated: ids may repeat, references may be dangling, strings are bytes. References are int64 and
ids uint64, as in the protobuf message; all numbers are modulo 2**64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint64]
Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Column = Ids | Integers | Bytes

SIZE_MAX = 64 << 20
"""Default maximum size of an uncompressed profile in bytes: heap profiles of large programs have a few MB, and the
columns of a malicious input need up to twenty times its size."""

ENTRIES_MAX = 2_000_000
"""Maximum number of entries of each table (samples, locations, labels, strings ...), so that entries of two bytes
cannot expand to gigabytes of columns. SIZE_MAX bounds location ids and values, which need at least a byte each."""

MAPPING_HAS_INLINE_FRAMES = 1
MAPPING_HAS_LINE_NUMBERS = 2
MAPPING_HAS_FILENAMES = 4
MAPPING_HAS_FUNCTIONS = 8


def _ids() -> Ids:
    return np.zeros(0, np.uint64)


def _integers() -> Integers:
    return np.zeros(0, np.int64)


def _flags() -> Bytes:
    return np.zeros(0, np.uint8)


def _starts() -> Integers:
    return np.zeros(1, np.int64)


@dataclass(slots=True, eq=False)
class Samples:
    """The samples: ragged location ids (leaf first), values (one per sample type) and labels."""

    location_starts: Integers = field(default_factory=_starts)
    location_ids: Ids = field(default_factory=_ids)
    value_starts: Integers = field(default_factory=_starts)
    values: Integers = field(default_factory=_integers)
    label_starts: Integers = field(default_factory=_starts)
    label_keys: Integers = field(default_factory=_integers)
    label_strings: Integers = field(default_factory=_integers)
    label_numbers: Integers = field(default_factory=_integers)
    label_units: Integers = field(default_factory=_integers)

    def __len__(self) -> int:
        return len(self.location_starts) - 1


@dataclass(slots=True, eq=False)
class Mappings:
    """The loaded binaries; ``flags`` is the sum of the MAPPING_HAS constants."""

    ids: Ids = field(default_factory=_ids)
    memory_starts: Ids = field(default_factory=_ids)
    memory_limits: Ids = field(default_factory=_ids)
    file_offsets: Ids = field(default_factory=_ids)
    filenames: Integers = field(default_factory=_integers)
    build_ids: Integers = field(default_factory=_integers)
    flags: Bytes = field(default_factory=_flags)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(slots=True, eq=False)
class Locations:
    """The locations in the program, with ragged lines, innermost first."""

    ids: Ids = field(default_factory=_ids)
    mapping_ids: Ids = field(default_factory=_ids)
    addresses: Ids = field(default_factory=_ids)
    folded: Bytes = field(default_factory=_flags)
    line_starts: Integers = field(default_factory=_starts)
    line_function_ids: Ids = field(default_factory=_ids)
    line_numbers: Integers = field(default_factory=_integers)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(slots=True, eq=False)
class Functions:
    """The functions; names and file names are references to strings."""

    ids: Ids = field(default_factory=_ids)
    names: Integers = field(default_factory=_integers)
    system_names: Integers = field(default_factory=_integers)
    filenames: Integers = field(default_factory=_integers)
    start_lines: Integers = field(default_factory=_integers)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(slots=True, eq=False)
class Profile:
    """A pprof profile. A value type is a pair of references to strings (type, unit); times are nanoseconds."""

    strings: list[bytes] = field(default_factory=list)
    sample_types: list[tuple[int, int]] = field(default_factory=list)
    period_type: tuple[int, int] = (0, 0)
    period: int = 0
    time_ns: int = 0
    duration_ns: int = 0
    drop_frames: int = 0
    keep_frames: int = 0
    comments: list[int] = field(default_factory=list)
    default_sample_type: int = 0
    samples: Samples = field(default_factory=Samples)
    mappings: Mappings = field(default_factory=Mappings)
    locations: Locations = field(default_factory=Locations)
    functions: Functions = field(default_factory=Functions)

    def __eq__(self, other: object) -> bool:
        """Return whether all fields and columns are equal."""
        if not isinstance(other, Profile):
            return NotImplemented
        return all(_same(getattr(self, one.name), getattr(other, one.name)) for one in fields(self))

    def check(self) -> None:
        """Assert the invariants of parsers: columns of equal length, ragged tables that match their items."""
        samples, locations = self.samples, self.locations
        _check_ragged(samples.location_starts, len(samples), [samples.location_ids])
        _check_ragged(samples.value_starts, len(samples), [samples.values])
        labels = [samples.label_keys, samples.label_strings, samples.label_numbers, samples.label_units]
        _check_ragged(samples.label_starts, len(samples), labels)
        _check_ragged(locations.line_starts, len(locations), [locations.line_function_ids, locations.line_numbers])
        _check_even(locations.ids, [locations.mapping_ids, locations.addresses, locations.folded])
        _check_even(self.mappings.ids, [getattr(self.mappings, one.name) for one in fields(Mappings)])
        _check_even(self.functions.ids, [getattr(self.functions, one.name) for one in fields(Functions)])


def _same(left: object, right: object) -> bool:
    if isinstance(left, np.ndarray):
        return isinstance(right, np.ndarray) and left.dtype == right.dtype and np.array_equal(left, right)
    if isinstance(left, Samples | Mappings | Locations | Functions):
        return all(_same(getattr(left, one.name), getattr(right, one.name)) for one in fields(left))
    return left == right


def _check_ragged(starts: Integers, owners: int, columns: Sequence[Column]) -> None:
    assert len(starts) == owners + 1
    assert starts[0] == 0
    assert bool((np.diff(starts) >= 0).all())
    assert {len(column) for column in columns} == {starts[-1]}


def _check_even(first: Column, others: Sequence[Column]) -> None:
    assert all(len(column) == len(first) for column in others)
