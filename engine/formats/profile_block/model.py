"""Types of profile blocks: metadata, series, symbols (``docs/reference/formats/profile-block.md``).

Times in the metadata of blocks and datasets are Unix milliseconds, and ranges include both ends; times of rows and
series are Unix nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Label = tuple[str, str]
Labels = tuple[Label, ...]

DATASET_PROFILES = 0
"""Dataset format: data of a service in three sections (profiles, series index, symbols)."""
DATASET_INDEX = 1
"""Dataset format: the dataset index of a tenant, one section in the format of a series index."""

COMPACTION_LEVEL_MAX = 3
"""Blocks of this level are final and never queued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetMeta:
    """An entry of a block's dataset list, with strings resolved. ``name`` is "" for the dataset index (format 1)."""

    tenant: str
    name: str
    min_time_ms: int
    max_time_ms: int
    table_of_contents: tuple[int, ...]
    size: int
    labels: tuple[Labels, ...] = ()
    format: int = DATASET_PROFILES

    def section_bounds(self) -> list[tuple[int, int]]:
        """Return (offset in the object, size) of each section in order."""
        ends = [*self.table_of_contents[1:], self.table_of_contents[0] + self.size]
        return [(start, end - start) for start, end in zip(self.table_of_contents, ends, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMeta:
    """The metadata of a segment (level 0) or compacted block (level 1 and above).

    ``string_table`` has all strings in stored order, so that a footer encodes to the same bytes. ``size`` is that of
    the object, 0 inside a footer.
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
    """An entry of a series index. ``labels`` are in stored order; times are nanoseconds.

    ``position`` is the field SeriesIndex of the chunk: the number of the series in the index of a dataset, the position
    of the dataset in a dataset index.
    """

    fingerprint: int
    labels: tuple[tuple[bytes, bytes], ...]
    min_time_ns: int
    max_time_ns: int
    position: int


class Mapping(NamedTuple):
    """A loaded binary. Flags: 8 functions, 4 file names, 2 line numbers, 1 inline frames. Strings are references."""

    filename: int
    build_id: int
    flags: int
    memory_start: int
    memory_limit: int
    file_offset: int


class Function(NamedTuple):
    """A function; ``name``, ``system_name`` and ``filename`` are references to strings."""

    name: int
    system_name: int
    filename: int
    start_line: int


class Location(NamedTuple):
    """A location in a program; ``mapping`` and the functions of ``lines`` are references, innermost line first."""

    mapping: int
    address: int
    lines: tuple[tuple[int, int], ...]
    is_folded: bool = False


@dataclass(slots=True)
class StackTree:
    """A tree of stacks: node 0 is the root (parent -1, location 0); a stack is the number of its leaf node."""

    parents: list[int] = field(default_factory=lambda: [-1])
    locations: list[int] = field(default_factory=lambda: [0])
    stack_count: int = 0
    max_nodes: int = 0xFFFFFFFF


@dataclass(slots=True)
class SymbolPartition:
    """The symbols of a symbol partition. Only old files with several chunks have more than one tree.

    A stack id is ``tree * max_nodes + node``. Strings are bytes; string 0 is empty.
    """

    id: int = 0
    strings: list[bytes] = field(default_factory=lambda: [b""])
    mappings: list[Mapping] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    locations: list[Location] = field(default_factory=list)
    trees: list[StackTree] = field(default_factory=lambda: [StackTree()])
