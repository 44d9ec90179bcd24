"""Run a merge of Parquet files, from its specification to the files of the result in the store.

Every folder of every chunk is merged separately. Outputs count only once the service has accepted the result; a failed
job deletes what it wrote.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.core.errors import BadObject, LithifyError, MergeCancelled
from engine.core.scratch_folders import scratch_folder
from engine.lanes.tables.jobs import ChunkResult, TableChunk, TableMergeResult, TableMergeSpec, WrittenFile
from engine.lanes.tables.merge.folder_merge import FolderResult, merge_folder
from engine.lanes.tables.merge.folder_plan import plan_folder
from engine.protocol.messages import Progress
from engine.storage import ObjectNotFound, ObjectStore

PHASE = "merge"


def run(
    spec: TableMergeSpec,
    store: ObjectStore,
    *,
    scratch: Path,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> TableMergeResult:
    """Run a whole merge in this process; ``store`` is opened at ``spec.url``.

    ``progress`` counts bytes of sources. Raises a BadObject naming file, row group and column for an invalid source,
    SchemaConflict, MergeRefused, SumOverflow, NotConserved, ScratchFull, StorageError, MergeCancelled. After an error
    all outputs are deleted, as far as the store permits.
    """
    parts: list[FolderPart] = []
    total = _ProgressTotal(source_bytes(spec), progress)
    try:
        for unit in units(spec):
            parts.append(run_unit(spec, unit, store, scratch=scratch, cancelled=cancelled, progress=total.add))
        if cancelled():
            raise MergeCancelled(f"job {spec.job} cancelled")
        return result_of(spec, parts)
    except BaseException:
        with suppress(LithifyError):  # The job's own error is the one to report.
            withdraw(spec, store)
        raise


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of parallel work: one folder of a chunk, given by its index in the specification."""

    chunk: int
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderPart:
    """A unit's contribution to the result of its chunk."""

    unit: Unit
    files: tuple[WrittenFile, ...]
    rows_read: int
    bytes_read: int
    sums: dict[str, str]


def units(spec: TableMergeSpec) -> list[Unit]:
    """Return the units of a job, in the order of their results."""
    return [Unit(number, folder) for number, chunk in enumerate(spec.chunks) for folder in chunk.folders()]


def source_bytes(spec: TableMergeSpec) -> int:
    """Return the bytes of sources read; a file in several chunks counts for each."""
    return sum(file.size for chunk in spec.chunks for file in chunk.files)


def unit_bytes(spec: TableMergeSpec, unit: Unit) -> int:
    """Return the bytes of sources that a unit reads."""
    return sum(file.size for file in spec.chunks[unit.chunk].folders()[unit.folder])


def run_unit(
    spec: TableMergeSpec,
    unit: Unit,
    store: ObjectStore,
    *,
    scratch: Path,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda size: None,
) -> FolderPart:
    """Merge one folder of one chunk; see ``run``."""
    with scratch_folder(scratch) as folder:
        plan, footers = plan_folder(spec, spec.chunks[unit.chunk], unit.folder, store, cancelled=cancelled)
        return part_of(unit, merge_folder(plan, footers, store, folder, cancelled=cancelled, progress=progress))


def withdraw(spec: TableMergeSpec, store: ObjectStore) -> None:
    """Delete the files written under this fencing token; call it only if no result of it will be reported."""
    for unit in units(spec):
        for number in itertools.count():
            path = spec.output_path(spec.chunks[unit.chunk], unit.folder, number)
            try:
                store.head(path)
            except ObjectNotFound:
                break
            store.delete(path)


def part_of(unit: Unit, result: FolderResult) -> FolderPart:
    """Return the report of a unit."""
    return FolderPart(
        unit=unit,
        files=result.files,
        rows_read=result.rows_read,
        bytes_read=result.bytes_read,
        sums=result.read.sums_text(),
    )


def result_of(spec: TableMergeSpec, parts: Sequence[FolderPart]) -> TableMergeResult:
    """Combine the parts of all units. Raises a BadObject if a shared file has rows outside of all chunks."""
    by_unit = {part.unit: part for part in parts}
    chunks = []
    for number, chunk in enumerate(spec.chunks):
        of_chunk = [by_unit[Unit(number, folder)] for folder in chunk.folders()]
        chunks.append(_chunk_result(chunk, of_chunk))
    _check_shared(spec, chunks)
    return TableMergeResult(chunks=tuple(chunks))


def _chunk_result(chunk: TableChunk, parts: Sequence[FolderPart]) -> ChunkResult:
    files = tuple(file for part in parts for file in part.files)
    return ChunkResult(
        start_ms=chunk.start_ms,
        end_ms=chunk.end_ms,
        sources=tuple(file.path for file in chunk.files),
        outputs=files,
        rows_read=sum(part.rows_read for part in parts),
        rows_written=sum(file.rows for file in files),
        bytes_read=sum(part.bytes_read for part in parts),
        sums=_added([part.sums for part in parts]),
    )


def _added(by_part: Sequence[dict[str, str]]) -> dict[str, str]:
    """Add sums given as text; sums of one column may have different decimal places."""
    digits: dict[str, int] = {}
    for sums in by_part:
        for name, text in sums.items():
            digits[name] = max(digits.get(name, 0), len(text.partition(".")[2]))
    totals = dict.fromkeys(digits, 0)
    for sums in by_part:
        for name, text in sums.items():
            whole, _, part = text.partition(".")
            totals[name] += int(whole + part.ljust(digits[name], "0"))
    return {name: _text(total, digits[name]) for name, total in totals.items()}


def _text(units_of_last: int, digits: int) -> str:
    if not digits:
        return str(units_of_last)
    text = str(abs(units_of_last)).zfill(digits + 1)
    return f"{'-' if units_of_last < 0 else ''}{text[:-digits]}.{text[-digits:]}"


def _check_shared(spec: TableMergeSpec, chunks: Sequence[ChunkResult]) -> None:
    """Check that the rows of files shared by several chunks were all read: others would be lost."""
    shared = {file.path: file.rows for chunk in spec.chunks for file in chunk.files if not file.whole}
    if not shared:
        return
    whole = sum(file.rows for chunk in spec.chunks for file in chunk.files if file.whole)
    read = sum(chunk.rows_read for chunk in chunks)
    if read != whole + sum(shared.values()):
        named = sorted(shared)[0] if len(shared) == 1 else ""
        files = ", ".join(sorted(shared)[:5])
        reason = f"{whole + sum(shared.values()) - read} rows of {files} are outside of all chunks of the job"
        raise BadObject(f"column {spec.time_column}", -1, reason, named)


class _ProgressTotal:
    """Adds up bytes of sources. Thread-safe."""

    def __init__(self, total: int, progress: Callable[[Progress], None]) -> None:
        self._lock = threading.Lock()
        self._total = total
        self._done = 0
        self._progress = progress

    def add(self, size: int) -> None:
        with self._lock:
            self._done = min(self._done + size, self._total)
            self._progress(Progress(done=self._done, total=self._total, phase=PHASE))
