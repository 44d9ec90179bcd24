"""Inputs and outputs of a dataset merge, and the rules that its implementations share.

``merge_rows(sources, *, selection, scratch, cancelled) -> MergedDataset`` of
``engine.lanes.profiles.merge.dataset_merge`` has two implementations, which write identical bytes by these rules:

1. Rows are merged by the key (labels, fingerprint, TimeNanos). Rows with equal keys are ordered by source, then by
   position. Rows of a source that are not in key order are a ``BadObject``.
2. With more than one source (``len(sources)``, even if some have no selected rows), a row is dropped if its ID was
   already emitted among the rows with equal key. With one source no row is dropped.
3. A series of the output starts when (labels, fingerprint) changes; series are numbered from 0.
4. A row group of the output ends before row ``ROW_GROUP_ROWS + 1``, and after the row with which the sum of
   ``ROW_BYTES + SAMPLE_BYTES * samples`` reaches ``ROW_GROUP_BYTES``.
5. Output partitions have the id of their source partition and ascend by id; a partition without an emitted row is
   omitted. A partition has one tree, with ``max_nodes`` 0xFFFFFFFF.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from engine.core.errors import BadObject
from engine.formats.profile_block.model import IndexedSeries

ROW_GROUP_ROWS = 10240
"""Maximum number of rows in a row group of a compacted block, a limit of the format."""
ROW_GROUP_BYTES = 8 << 20
"""Decoded size at which a row group ends early, to bound the memory of readers."""
ROW_BYTES = 64
SAMPLE_BYTES = 24
"""Sizes of a row and of a sample for ``ROW_GROUP_BYTES``."""
CANCEL_CHECK_BYTES = 64 << 20
"""``cancelled`` is called at least once per this many source bytes, and at every row group."""
WHOLE_DATASET_BYTES = 8 << 20
"""A source dataset up to this size is read with one request, a larger one section by section."""
STREAMED_PROFILES_BYTES = 4 << 20
"""A profile table beyond this size is read row group by row group, a smaller one whole."""
SECTION_INLINE_BYTES = 8 << 20
"""An output section beyond this size is moved from memory to a file."""
READ_BATCH_BYTES = 2 << 20
"""Decoded size (as in ROW_GROUP_BYTES) of the batch that each source holds in memory."""
CHUNK_BYTES = 1 << 20

PROFILES, SERIES_INDEX, SYMBOLS = 0, 1, 2
"""Positions of the sections in a table of contents of format 0."""
SECTION_NAMES = ("profiles", "series_index", "symbols")

Selection = Sequence[Collection[int]] | None
"""None: all series; else, per source, the SeriesIndex values to keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSource:
    """A source of a dataset merge: the positions of its three sections, and how to read them.

    ``table_of_contents`` has absolute offsets in the object, ``size`` is that of all sections. ``read(offset, length)``
    takes absolute offsets and returns exactly ``length`` bytes or raises.
    """

    object_name: str
    table_of_contents: tuple[int, int, int]
    size: int
    read: Callable[[int, int], bytes]

    def section_bounds(self, section: int) -> tuple[int, int]:
        """Return (absolute offset, size) of PROFILES, SERIES_INDEX or SYMBOLS. Raises BadObject if they are invalid."""
        starts = self.table_of_contents
        ends = (*starts[1:], starts[0] + self.size)
        if starts[0] < 0 or ends[section] < starts[section]:
            raise BadObject("container", starts[section], f"{SECTION_NAMES[section]} ends before it starts")
        return starts[section], ends[section] - starts[section]

    def read_section(self, section: int) -> bytes:
        """Return a whole section."""
        return self.read(*self.section_bounds(section))


@dataclass(frozen=True, slots=True)
class InlineSection:
    """A finished section in memory."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the section in order."""
        yield self.data

    def read(self, offset: int, length: int) -> bytes:
        """Return a range of bytes of the section."""
        return self.data[offset : offset + length]

    def close(self) -> None:
        """Do nothing: there is no file to delete."""


@dataclass(frozen=True, slots=True)
class FileSection:
    """A finished section in a scratch file; ``close`` deletes it."""

    path: Path
    size: int

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the section in order, CHUNK_BYTES at a time."""
        with self.path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def read(self, offset: int, length: int) -> bytes:
        """Return a range of bytes of the section."""
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def close(self) -> None:
        """Delete the file; idempotent."""
        self.path.unlink(missing_ok=True)


SectionData = InlineSection | FileSection


class SectionSink(io.RawIOBase):
    """A write-only file in memory, which is moved to a scratch file when it exceeds the inline limit."""

    def __init__(self, directory: Path, inline_bytes_max: int) -> None:
        super().__init__()
        self._directory = directory
        self._inline_bytes_max = inline_bytes_max
        self._memory = io.BytesIO()
        self._file: IO[bytes] | None = None
        self._path: Path | None = None
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: object) -> int:
        """Append bytes (any object with a buffer) and return their number."""
        view = memoryview(data)  # type: ignore[arg-type]
        if self._file is None and self._size + view.nbytes > self._inline_bytes_max:
            self._spill()
        (self._file or self._memory).write(view)
        self._size += view.nbytes
        return view.nbytes

    def finish(self) -> SectionData:
        """Close the sink and return the section."""
        self.close()
        if self._path is not None:
            return FileSection(self._path, self._size)
        return InlineSection(self._memory.getvalue())

    def discard(self) -> None:
        """Close the sink and delete its data."""
        self.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None and not self._file.closed:
            self._file.close()
        super().close()

    def _spill(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        file = tempfile.NamedTemporaryFile(dir=self._directory, prefix="section-", delete=False)  # noqa: SIM115
        self._path = Path(file.name)
        file.write(self._memory.getbuffer())
        self._memory = io.BytesIO()
        self._file = file


@dataclass(frozen=True, slots=True)
class Scratch:
    """The location of finished sections until they are written to a result object."""

    directory: Path
    inline_bytes_max: int = SECTION_INLINE_BYTES

    def sink(self) -> SectionSink:
        """Return a new sink, to be ended with ``finish`` or ``discard``."""
        return SectionSink(self.directory, self.inline_bytes_max)

    def section(self, data: bytes) -> SectionData:
        """Return a section of these bytes."""
        if len(data) <= self.inline_bytes_max:
            return InlineSection(data)
        sink = self.sink()
        sink.write(data)
        return sink.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedDataset:
    """A merged dataset for a result block.

    ``sections`` are profiles, series index and symbols; ``series`` are the series of the output in order. ``rows_read``
    is the number of selected source rows, ``bytes_read`` the size of the source datasets. Times are those of the rows,
    0 without rows.
    """

    sections: tuple[SectionData, SectionData, SectionData]
    series: tuple[IndexedSeries, ...]
    row_count: int
    rows_read: int
    rows_dropped: int
    sample_count: int
    min_time_ns: int
    max_time_ns: int
    bytes_read: int

    @property
    def size(self) -> int:
        """Size of the three sections in bytes."""
        return sum(section.size for section in self.sections)

    def close(self) -> None:
        """Delete scratch files."""
        for section in self.sections:
            section.close()
