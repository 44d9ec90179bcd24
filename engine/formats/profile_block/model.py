"""The nouns of profile storage: block metadata, series, symbols, rows.

Source: the profile block format sheet, sections 2 to 5 (``docs/reference/formats/profile-block.md``). Times of
block and dataset metadata are unix milliseconds and closed at both ends, as the format has them; times of rows and
series are unix nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Label = tuple[str, str]
Labels = tuple[Label, ...]

DATASET_PROFILES = 0
"""Dataset format: per-service data in three sections (profiles, series index, symbols)."""
DATASET_INDEX = 1
"""Dataset format: the tenant-wide dataset index, one section in series-index format."""

COMPACTION_LEVEL_MAX = 3
"""Blocks of this level are final: they are never queued again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetMeta:
    """One entry of a block's dataset list, strings resolved. ``name`` is "" for the dataset index (format 1)."""

    tenant: str
    name: str
    min_time_ms: int
    max_time_ms: int
    table_of_contents: tuple[int, ...]
    size: int
    labels: tuple[Labels, ...] = ()
    format: int = DATASET_PROFILES

    def section_bounds(self) -> list[tuple[int, int]]:
        """Return (offset in the object, size) of every section, in order."""
        ends = [*self.table_of_contents[1:], self.table_of_contents[0] + self.size]
        return [(start, end - start) for start, end in zip(self.table_of_contents, ends, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMeta:
    """What is known of a segment (level 0) or compacted block (level 1 and up).

    ``string_table`` keeps the order of the stored table, so that a footer re-encodes byte for byte; every string of
    the datasets is in it. ``size`` is the object's length (0 inside a footer).
    """

    id: str
    tenant: str
    shard: int
    compaction_level: int
    min_time_ms: int
    max_time_ms: int
    datasets: tuple[DatasetMeta, ...]
    string_table: tuple[str, ...]
    created_by: str = ""
    size: int = 0
    metadata_offset: int = 0
    format_version: int = 1


class IndexedSeries(NamedTuple):
    """One entry of a series index. ``labels`` are in stored order; times are nanoseconds.

    ``position`` is the field SeriesIndex of the chunk: the series' ordinal in a dataset's index, the dataset's
    position in a dataset index.
    """

    fingerprint: int
    labels: tuple[tuple[bytes, bytes], ...]
    min_time_ns: int
    max_time_ns: int
    position: int


class Mapping(NamedTuple):
    """A loaded binary. Flags: 8 functions, 4 file names, 2 line numbers, 1 inline frames. Strings are refs."""

    filename: int
    build_id: int
    flags: int
    memory_start: int
    memory_limit: int
    file_offset: int


class Function(NamedTuple):
    """A function; ``name``, ``system_name`` and ``filename`` are string refs."""

    name: int
    system_name: int
    filename: int
    start_line: int


class Location(NamedTuple):
    """A place in a program; ``mapping`` and the functions of ``lines`` are 0-based refs, innermost line first."""

    mapping: int
    address: int
    lines: tuple[tuple[int, int], ...]
    is_folded: bool = False


@dataclass(slots=True)
class StackTree:
    """A tree of stacks: node 0 is the root (parent -1, location 0); a stack is its leaf's node number."""

    parents: list[int] = field(default_factory=lambda: [-1])
    locations: list[int] = field(default_factory=lambda: [0])
    stack_count: int = 0
    max_nodes: int = 0xFFFFFFFF


@dataclass(slots=True)
class SymbolPartition:
    """All symbols of one partition. ``trees`` has one tree, several only in old multi-chunk files.

    A stack id is ``tree * max_nodes + node``. Strings are raw bytes; string 0 is empty.
    """

    id: int = 0
    strings: list[bytes] = field(default_factory=lambda: [b""])
    mappings: list[Mapping] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    locations: list[Location] = field(default_factory=list)
    trees: list[StackTree] = field(default_factory=lambda: [StackTree()])
