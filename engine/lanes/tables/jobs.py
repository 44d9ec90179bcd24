"""Job specification and result of the tables lane (Parquet files on a timeline), and their JSON form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import xxhash

from engine.core import ulids

KIND = "tables"
FUNCTIONS = ("sum", "min", "max", "count", "distinct")
"""Functions of roll-up metrics; ``distinct`` keeps a sketch of the values, ``count`` counts rows."""
TIME_UNITS = ("", "s", "ms", "us", "ns")
"""Units of integer time columns since 1970; "" for timestamp and date columns."""
_OUTPUT_NAME = re.compile(rf"lithify-[{ulids.ALPHABET}]{{{ulids.LENGTH}}}\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A Parquet file to merge: its path below the data source's URL, its size in bytes and its rows.

    ``whole``: all its rows belong to the chunk that lists it. Otherwise several chunks list it, and each takes the rows
    with times inside it.
    """

    path: str
    size: int
    rows: int
    whole: bool = True

    @property
    def folder(self) -> str:
        """The file's folder ("dt=2024-02-01/region=eu", "" for the top); files of two folders are never merged."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChunk:
    """A time chunk (Unix ms, end exclusive) and its files; their order decides among equal rows."""

    start_ms: int
    end_ms: int
    files: tuple[TableFile, ...]

    def folders(self) -> dict[str, list[TableFile]]:
        """Return the files by folder, folders sorted."""
        found: dict[str, list[TableFile]] = {}
        for file in self.files:
            found.setdefault(file.folder, []).append(file)
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A column ``name`` of rolled-up rows: ``function`` of the source column ``column`` ("" for ``count``).

    In a file that is already rolled up, ``name`` itself is the source.
    """

    name: str
    function: str
    column: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollUp:
    """Combine rows of equal ``dimensions`` and time; times are truncated to ``granularity_ms`` (0: not truncated).

    Steps are counted from the start of the chunk, so that every row stays in its chunk.
    """

    dimensions: tuple[str, ...]
    metrics: tuple[Metric, ...]
    granularity_ms: int = 0


def is_output_name(path: str) -> bool:
    """Return whether a path ends in a name that ``TableMergeSpec.output_path`` gives."""
    return _OUTPUT_NAME.fullmatch(path.rpartition("/")[2]) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMergeSpec:
    """The specification of a merge of Parquet files.

    The files are stored below ``url``. ``source`` is the data source's name. ``time_column`` has the unit ``time_unit``
    if its type has none. Rows are sorted by ``sort_columns``, then time, then source order. ``target_bytes`` limits the
    size of an output file, and ``target_rows`` its rows unless it is 0. ``fence`` is the fencing token (a command
    index), part of the names of outputs. ``task_memory_bytes`` bounds the memory of the merge of one folder of a chunk.
    """

    job: str
    tenant: str
    source: str
    url: str
    chunks: tuple[TableChunk, ...]
    time_column: str
    time_unit: str = ""
    sort_columns: tuple[str, ...] = ()
    roll_up: RollUp | None = None
    target_bytes: int = 500_000_000
    target_rows: int = 0
    fence: int | None = None
    task_memory_bytes: int = 512 << 20

    def output_path(self, chunk: TableChunk, folder: str, number: int) -> str:
        """Return the path of the ``number``-th output of a chunk's folder, counted from 0."""
        parts = [self.job, self.fence, chunk.start_ms, chunk.end_ms, folder, number]
        entropy = xxhash.xxh3_128_digest(repr(parts).encode())[: ulids.ENTROPY_BYTES]
        ulid = ulids.make(min(max(chunk.start_ms, 0), ulids.TIME_MS_MAX), entropy)
        return f"{folder}/lithify-{ulid}.parquet" if folder else f"lithify-{ulid}.parquet"

    def to_json(self) -> dict[str, Any]:
        return {"kind": KIND} | asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TableMergeSpec:
        """Return the specification that ``to_json`` encoded; ``read_table_spec`` reads untrusted input."""
        roll_up = data["roll_up"]
        return cls(
            **{name: data[name] for name in _PLAIN},
            chunks=tuple(
                TableChunk(
                    start_ms=chunk["start_ms"],
                    end_ms=chunk["end_ms"],
                    files=tuple(TableFile(**file) for file in chunk["files"]),
                )
                for chunk in data["chunks"]
            ),
            sort_columns=tuple(data["sort_columns"]),
            roll_up=None if roll_up is None else roll_up_from_json(roll_up),
        )


_PLAIN = tuple(name for name in TableMergeSpec.__slots__ if name not in ("chunks", "sort_columns", "roll_up"))
"""The fields that are JSON values as they are."""


def roll_up_from_json(data: Mapping[str, Any]) -> RollUp:
    """Return the roll-up of a JSON form."""
    return RollUp(
        dimensions=tuple(data["dimensions"]),
        metrics=tuple(Metric(**metric) for metric in data["metrics"]),
        granularity_ms=data["granularity_ms"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A Parquet file that a merge wrote; ``crc32c`` covers the whole file.

    ``min_time_ms`` and ``max_time_ms`` bound the time column, rounded down to milliseconds; None if all values are
    null.
    """

    path: str
    size: int
    crc32c: int
    rows: int
    min_time_ms: int | None
    max_time_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkResult:
    """The result of a chunk: the paths of its sources, all of them read, and the files written in their place.

    ``rows_read`` counts rows of this chunk only. ``bytes_read`` is the chunk's share of its sources' bytes, by rows.
    ``sums`` are the exact sums of integer and decimal columns of the rows read (for roll-ups: of summed columns), as
    text; the merge has verified them against the rows written.
    """

    start_ms: int
    end_ms: int
    sources: tuple[str, ...]
    outputs: tuple[WrittenFile, ...]
    rows_read: int
    rows_written: int
    bytes_read: int
    sums: Mapping[str, str]

    @property
    def bytes_written(self) -> int:
        return sum(file.size for file in self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMergeResult:
    """The report of a finished merge: every chunk of the specification, in its order."""

    chunks: tuple[ChunkResult, ...]

    @property
    def outputs(self) -> Sequence[WrittenFile]:
        return [file for chunk in self.chunks for file in chunk.outputs]

    def to_log(self) -> list[dict[str, Any]]:
        """Return the entries of the command log for the written files."""
        return [{"path": file.path, "size": file.size} for file in self.outputs]

    def to_json(self) -> dict[str, Any]:
        return {"kind": KIND, "chunks": [asdict(chunk) for chunk in self.chunks]}
