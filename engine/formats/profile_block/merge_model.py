"""What a dataset merge takes and gives, for the plain twin and the compiled merge alike.

``merge_rows(sources, *, selection, scratch, cancelled) -> MergedDataset`` is the one operation behind the door
``engine.lanes.profiles.merge.dataset_merge``. Both implementations agree on the bytes of every section because they
agree on these rules (numbers refer to nothing else):

1. Rows are merged by the key (labels, fingerprint, TimeNanos); equal keys: the earlier source first, inside a source
   row order. Rows of a source that are not in key order are a ``BadObject``.
2. With more than one source (``len(sources)``, whether or not all of them have selected rows) a row is dropped if its
   ID was already emitted among the rows of equal key. With one source nothing is dropped.
3. A series of the output begins when (labels, fingerprint) changes; series are numbered from 0.
4. A row group of the output ends before the row that would be number ``ROW_GROUP_ROWS + 1``, and after the row with
   which the sum of ``ROW_BYTES + SAMPLE_BYTES * samples`` reaches ``ROW_GROUP_BYTES``.
5. Output partitions keep their source partition's id and are written in ascending id; only a partition that an
   emitted row refers to exists. Tree ``max_nodes`` is 0xFFFFFFFF, there is one tree.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from engine.core.errors import BadObject, LimitExceeded
from engine.formats.profile_block.model import IndexedSeries

ROW_GROUP_ROWS = 10240
"""Most rows in a row group of a compacted block; the format's own limit."""
ROW_GROUP_BYTES = 8 << 20
"""Decoded size at which a row group ends early, so that a reader's memory has a bound."""
ROW_BYTES = 64
SAMPLE_BYTES = 24
"""What a row and each of its samples count for in ``ROW_GROUP_BYTES``."""
CANCEL_CHECK_BYTES = 64 << 20
"""``cancelled`` is asked at least once in so many source bytes, and at every row group."""
WHOLE_DATASET_BYTES = 8 << 20
"""A source dataset up to this size is fetched by one range read; a larger one section by section."""
STREAMED_PROFILES_BYTES = 4 << 20
"""A profile table beyond this size is read row group by row group; a smaller one is read whole."""
SECTION_INLINE_BYTES = 8 << 20
"""An output section beyond this size goes from memory to a file."""
READ_BATCH_BYTES = 2 << 20
"""Decoded size (as in ROW_GROUP_BYTES) of what is read of a source at once, because every source has one such batch."""
CHUNK_BYTES = 1 << 20

PROFILES, SERIES_INDEX, SYMBOLS = 0, 1, 2
"""Positions of the sections in a table of contents of format 0."""
SECTION_NAMES = ("profiles", "series_index", "symbols")

Selection = Sequence[Collection[int]] | None
"""None: all series; else, per source, the SeriesIndex values to keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSource:
    """One source of a dataset merge: where its three sections are and how to read them.

    ``table_of_contents`` holds absolute offsets in the object, ``size`` the bytes of all sections. ``read(offset,
    length)`` takes absolute offsets and returns exactly ``length`` bytes or raises.
    """

    object_name: str
    table_of_contents: tuple[int, int, int]
    size: int
    read: Callable[[int, int], bytes]

    def section_bounds(self, section: int) -> tuple[int, int]:
        """Return (absolute offset, size) of PROFILES, SERIES_INDEX or SYMBOLS; BadObject if they make no sense."""
        starts = self.table_of_contents
        ends = (*starts[1:], starts[0] + self.size)
        if starts[0] < 0 or ends[section] < starts[section]:
            raise BadObject("container", starts[section], f"{SECTION_NAMES[section]} ends before it starts")
        return starts[section], ends[section] - starts[section]

    def read_section(self, section: int) -> bytes:
        """Read a section whole."""
        return self.read(*self.section_bounds(section))


@dataclass(frozen=True, slots=True)
class InlineSection:
    """A finished section held in memory."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def chunks(self) -> Iterator[bytes]:
        """Yield the section's bytes in order."""
        yield self.data

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes from the middle."""
        return self.data[offset : offset + length]

    def close(self) -> None:
        """Nothing to give back."""


@dataclass(frozen=True, slots=True)
class FileSection:
    """A finished section in a scratch file; ``close`` deletes it."""

    path: Path
    size: int

    def chunks(self) -> Iterator[bytes]:
        """Yield the section's bytes in order, CHUNK_BYTES at a time."""
        with self.path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes from the middle."""
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def close(self) -> None:
        """Delete the file; doing it twice is harmless."""
        self.path.unlink(missing_ok=True)


SectionData = InlineSection | FileSection


class SectionSink(io.RawIOBase):
    """A write-only file that starts in memory and moves to a scratch file when it outgrows the inline limit."""

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
        """Append bytes (anything with a buffer) and return how many."""
        view = memoryview(data)  # type: ignore[arg-type]
        if self._file is None and self._size + view.nbytes > self._inline_bytes_max:
            self._spill()
        (self._file or self._memory).write(view)
        self._size += view.nbytes
        return view.nbytes

    def finish(self) -> SectionData:
        """Close the sink and return what was written."""
        self.close()
        if self._path is not None:
            return FileSection(self._path, self._size)
        return InlineSection(self._memory.getvalue())

    def discard(self) -> None:
        """Close the sink and forget what was written."""
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
    """Where finished sections stay until they are written to a result object."""

    directory: Path
    inline_bytes_max: int = SECTION_INLINE_BYTES

    def sink(self) -> SectionSink:
        """Open a new sink; end it with ``finish`` or ``discard``."""
        return SectionSink(self.directory, self.inline_bytes_max)

    def section(self, data: bytes) -> SectionData:
        """Keep bytes that are already whole."""
        if len(data) <= self.inline_bytes_max:
            return InlineSection(data)
        sink = self.sink()
        sink.write(data)
        return sink.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedDataset:
    """A merged dataset, ready to be placed in a result block.

    ``sections`` are profiles, series index and symbols. ``series`` are the output's series in order. ``rows_read``
    counts selected source rows, ``bytes_read`` the bytes of the source datasets. Times are those of the rows, 0 when
    there are none.
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
        """Bytes of the three sections."""
        return sum(section.size for section in self.sections)

    def close(self) -> None:
        """Give back scratch files."""
        for section in self.sections:
            section.close()


def check_count(section: str, offset: int, count: int, unit_bytes: int, available: int) -> None:
    """Refuse a count of items of at least ``unit_bytes`` each that the available bytes cannot hold."""
    if count < 0 or count * unit_bytes > available:
        raise LimitExceeded(section, offset, f"{count} items cannot be in {available} bytes")
