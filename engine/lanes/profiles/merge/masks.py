"""Apply delete requests: remove rows from the sources of a merge before the merge, and from query results.

A mask without a time bound removes whole series: the merge gets a selection of the others. A mask with a time bound
removes rows: the source's profile table is read once and replaced by one with the remaining rows. Rows are selected by
their own times, never by the times in an index. The merge implementations do not handle masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.core.errors import BadObject, MergeCancelled, Truncated
from engine.formats.profile_block.merge_model import (
    PROFILES,
    SERIES_INDEX,
    SYMBOLS,
    DatasetSource,
    Scratch,
    SectionData,
)
from engine.formats.profile_block.model import DatasetMeta, IndexedSeries, Labels
from engine.formats.profile_block.selectors import match_all, parse_selector
from engine.formats.profile_block.series.series_index import decode_series_index
from engine.formats.profile_block.table.profile_table import ProfileTableReader, ProfileTableWriter, SectionFile
from engine.formats.profile_block.table.table_footer import check_table_footer
from engine.lanes.profiles.jobs import DeleteMask

NANOS_PER_MS = 1_000_000
TIME_MIN_NS, TIME_MAX_NS = -(1 << 63), (1 << 63) - 1

Cancelled = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class MaskedSource:
    """A source without the rows that its masks remove; ``kept`` holds its remaining series, None for all."""

    source: DatasetSource
    kept: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class HiddenRows:
    """The rows of a source that masks remove: whole series, and time intervals of some series."""

    series: frozenset[int]
    intervals: tuple[_Interval, ...]

    @classmethod
    def of(cls, series: Sequence[IndexedSeries], masks: Sequence[DeleteMask]) -> HiddenRows:
        """Return the rows that masks remove from a source with these series."""
        matched = {mask: matched_series(series, mask) for mask in masks}
        timeless = {mask for mask in masks if mask.from_ms is None and mask.until_ms is None}
        gone = frozenset[int]().union(*(matched[mask] for mask in timeless))
        intervals = (_Interval.of(mask, matched[mask] - gone) for mask in masks if mask not in timeless)
        return cls(gone, tuple(interval for interval in intervals if interval.series.size))

    def in_intervals(self, series: npt.NDArray[np.uint32], times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for rows of these series and times (nanoseconds) whether they lie in one of the intervals."""
        gone = np.zeros(len(series), np.bool_)
        for interval in self.intervals:
            gone |= interval.covers(series, times)
        return gone

    def without_intervals(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch outside the intervals; the caller removes whole series."""
        if not self.intervals:
            return batch
        gone = self.in_intervals(
            batch.column("SeriesIndex").to_numpy(), batch.column("TimeNanos").cast(pa.int64()).to_numpy()
        )
        return batch.take(pa.array(np.flatnonzero(~gone))) if gone.any() else batch


def masks_on(dataset: DatasetMeta, masks_applied: int, masks: Iterable[DeleteMask]) -> tuple[DeleteMask, ...]:
    """Return the masks that apply to a dataset whose bytes obey delete commands up to ``masks_applied``."""
    return tuple(
        mask
        for mask in masks
        if mask.index > masks_applied and mask.tenant == dataset.tenant and mask.service in ("", dataset.name)
    )


@contextmanager
def masked_sources(
    sources: Sequence[DatasetSource], masks: Sequence[Sequence[DeleteMask]], scratch: Scratch, cancelled: Cancelled
) -> Iterator[list[MaskedSource]]:
    """Yield every source without the rows that its masks remove; scratch files are removed afterwards.

    Raises BadObject with the source that cannot be read, or MergeCancelled.
    """
    with ExitStack() as held:
        found = []
        for source, own in zip(sources, masks, strict=True):
            try:
                found.append(_masked(source, own, scratch, cancelled, held))
            except BadObject as error:
                raise error if error.object_name else error.in_object(source.object_name) from error
        yield found


def matched_series(series: Sequence[IndexedSeries], mask: DeleteMask) -> frozenset[int]:
    """Return the numbers of the series that a mask matches, ignoring its time range."""
    label_sets = [_text(entry.labels) for entry in series]
    matches = match_all(label_sets, parse_selector(mask.selector))
    return frozenset(entry.position for entry, is_match in zip(series, matches, strict=True) if is_match)


def covers_series(mask: DeleteMask, entry: IndexedSeries) -> bool:
    """Return whether a mask removes a whole series, if its rows have the time range of its index entry."""
    first, last = entry.min_time_ns // NANOS_PER_MS, entry.max_time_ns // NANOS_PER_MS
    in_time = (mask.from_ms is None or mask.from_ms <= first) and (mask.until_ms is None or last < mask.until_ms)
    return in_time and bool(match_all([_text(entry.labels)], parse_selector(mask.selector))[0])


def all_series(source: DatasetSource) -> frozenset[int]:
    """Return the numbers of all series of a source."""
    return frozenset(entry.position for entry in decode_series_index(source.read_section(SERIES_INDEX)))


def _masked(
    source: DatasetSource, masks: Sequence[DeleteMask], scratch: Scratch, cancelled: Cancelled, held: ExitStack
) -> MaskedSource:
    if not masks:
        return MaskedSource(source, None)
    series = decode_series_index(source.read_section(SERIES_INDEX))
    hidden = HiddenRows.of(series, masks)
    if hidden.intervals:
        rows = held.enter_context(_remaining_rows(source, hidden, scratch, cancelled))
        source = _with_profiles(source, rows) if rows is not None else source
    kept = frozenset(entry.position for entry in series) - hidden.series
    return MaskedSource(source, kept if hidden.series else None)


@dataclass(frozen=True, slots=True)
class _Interval:
    """The rows of some series in a time interval, closed at both ends."""

    series: npt.NDArray[np.uint32]
    first_ns: int
    last_ns: int

    @classmethod
    def of(cls, mask: DeleteMask, numbers: frozenset[int]) -> _Interval:
        first_ns = TIME_MIN_NS if mask.from_ms is None else mask.from_ms * NANOS_PER_MS
        last_ns = TIME_MAX_NS if mask.until_ms is None else mask.until_ms * NANOS_PER_MS - 1
        return cls(
            np.array(sorted(numbers), np.uint32),
            min(max(first_ns, TIME_MIN_NS), TIME_MAX_NS),
            min(max(last_ns, TIME_MIN_NS), TIME_MAX_NS),
        )

    def covers(self, series: npt.NDArray[np.uint32], times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        inside = (times >= self.first_ns) & (times <= self.last_ns)
        return inside & np.isin(series, self.series)


@contextmanager
def _remaining_rows(
    source: DatasetSource, hidden: HiddenRows, scratch: Scratch, cancelled: Cancelled
) -> Iterator[SectionData | None]:
    """Yield the profile table without the rows in the intervals, None if it has none of them."""
    sink = scratch.sink()
    writer = ProfileTableWriter(sink)
    try:
        rows_read = 0
        for batch in _batches(source):
            if cancelled():
                raise MergeCancelled("the merge was cancelled")
            rows_read += batch.num_rows
            writer.write(hidden.without_intervals(batch))
        writer.close()
    except BaseException:
        writer.close()
        sink.discard()
        raise
    if writer.row_count == rows_read:
        sink.discard()
        yield None
        return
    section = sink.finish()
    try:
        yield section
    finally:
        section.close()


def _batches(source: DatasetSource) -> Iterator[pa.RecordBatch]:
    offset, size = source.section_bounds(PROFILES)
    check_table_footer(lambda at, count: source.read(offset + at, count), size)
    return ProfileTableReader(SectionFile(source.read, offset, size)).batches()


def _with_profiles(source: DatasetSource, profiles: SectionData) -> DatasetSource:
    """Return the source with its profile table replaced."""
    index_start, index_size = source.section_bounds(SERIES_INDEX)
    symbols_start, symbols_size = source.section_bounds(SYMBOLS)
    starts = (0, profiles.size, profiles.size + index_size)
    places = ((starts[1], index_start, index_size), (starts[2], symbols_start, symbols_size))

    def read(offset: int, length: int) -> bytes:
        if offset + length <= profiles.size:
            return profiles.read(offset, length)
        for start, original, size in places:
            if start <= offset and offset + length <= start + size:
                return source.read(original + offset - start, length)
        raise Truncated("container", offset, f"{length} bytes wanted across sections", source.object_name)

    size = profiles.size + index_size + symbols_size
    return replace(source, table_of_contents=starts, size=size, read=read)


def _text(labels: tuple[tuple[bytes, bytes], ...]) -> Labels:
    return tuple((name.decode(errors="replace"), value.decode(errors="replace")) for name, value in labels)
