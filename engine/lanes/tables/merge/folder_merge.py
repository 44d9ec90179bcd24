"""Merge one folder of a chunk in one process within its memory limit: the unit of parallel work.

Sorted files are merged directly, in memory if they fit, otherwise as streams. Other files are sorted in pieces, which
are spilled to the scratch folder when they fill the memory; finally all pieces are merged, in several passes if there
are too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from engine.core.errors import LithifyError
from engine.formats.parquet.errors import NotSorted
from engine.formats.parquet.footers import Footer
from engine.lanes.tables.jobs import WrittenFile
from engine.lanes.tables.merge.conservation import Tally, check_conserved
from engine.lanes.tables.merge.folder_plan import FolderPlan
from engine.lanes.tables.merge.output_files import OutputFiles
from engine.lanes.tables.merge.rolling import fold_sorted
from engine.lanes.tables.merge.sorted_merge import Window, merge_sorted, merge_windows, sorted_piece
from engine.storage import ObjectStore

MEMORY_SHARE = 4
"""Divisor of the memory budget for rows in memory: sorting, gathering and writing hold copies of some."""
STREAMS_MAX = 256
"""Maximum number of files read at the same time."""
SPILL_ROWS = 1 << 14
"""Rows of a batch of a spilled run; a merge of runs holds one batch of each."""


@dataclass(frozen=True, slots=True)
class FolderResult:
    """The result of one folder of a chunk; ``bytes_read`` is its share of the files' bytes, by rows."""

    files: tuple[WrittenFile, ...]
    rows_read: int
    bytes_read: int
    read: Tally


def merge_folder(
    plan: FolderPlan,
    footers: Sequence[Footer],
    store: ObjectStore,
    scratch: Path,
    *,
    may_sort: bool = True,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda size: None,
) -> FolderResult:
    """Merge the files of a folder; ``scratch`` is an empty folder. ``progress`` receives the bytes of sources read.

    Raises NotSorted if a file is not sorted and ``may_sort`` is False. Raises a BadObject naming file and place,
    SchemaConflict, MergeRefused, MergeCancelled, NotConserved, StorageError; no outputs are left in the store then.
    """

    def rows_of(number: int, read: Tally) -> Iterator[pa.Table]:
        yield from plan.rows_of(store, number, footers[number], read, cancelled)
        progress(footers[number].size)

    if plan.roll_up is None and _can_stream(plan, footers):
        with suppress(NotSorted):
            read = plan.tally()
            runs = [rows_of(number, read) for number in range(len(plan.files))]
            names = [file.path for file in plan.files]
            return write_sorted(plan, merge_sorted(runs, plan.order, names), read, store, scratch, cancelled)
    read = plan.tally()
    spill = _Spill(plan, scratch, may_sort or plan.roll_up is not None)
    for number, file in enumerate(plan.files):
        for table in rows_of(number, read):
            spill.add(table, file.path)
    return write_sorted(plan, spill.tables(), read, store, scratch, cancelled)


def write_sorted(
    plan: FolderPlan,
    tables: Iterable[pa.Table],
    read: Tally,
    store: ObjectStore,
    scratch: Path,
    cancelled: Callable[[], bool],
) -> FolderResult:
    """Write sorted rows and compare them with the rows read; ``read`` is final once ``tables`` is exhausted."""
    (folder := scratch / "outputs").mkdir(exist_ok=True)
    outputs = OutputFiles(plan.output_rules(), store, folder, plan.tally(), cancelled)
    try:
        for table in tables if plan.roll_up is None else fold_sorted(tables, plan.roll_up, plan.order):
            outputs.add(table)
        files = outputs.finish()
        check_conserved(read, outputs.tally, plan.name)
    except BaseException:
        with suppress(LithifyError):  # The merge's own error is the one to report.
            outputs.withdraw()
        raise
    return FolderResult(tuple(files), read.rows, bytes_read(plan, read.rows), read)


def bytes_read(plan: FolderPlan, rows: int) -> int:
    """Return the share of the files' bytes that ``rows`` of their rows have."""
    totals = plan.totals
    return totals.size if rows == totals.rows else totals.size * rows // max(totals.rows, 1)


def _can_stream(plan: FolderPlan, footers: Sequence[Footer]) -> bool:
    """Return whether all files are sorted as required, and reading them at once fits the memory limit.

    Files that fit into memory need not be streamed.
    """
    wanted = tuple(column.name for column in plan.order.columns)
    held = sum(
        max((group.uncompressed_bytes for group in footer.groups), default=0) + plan.piece_bytes // 4
        for footer in footers
    )
    return (
        len(plan.files) <= STREAMS_MAX
        and plan.totals.pages_bytes > plan.spec.task_memory_bytes // (2 * MEMORY_SHARE)
        and held <= plan.spec.task_memory_bytes // 2
        and all(footer.sorted_by[: len(wanted)] == wanted for footer in footers)
    )


class _Spill:
    """Sorted pieces of rows in file order; spilled to disk beyond their share of memory."""

    def __init__(self, plan: FolderPlan, scratch: Path, may_sort: bool) -> None:
        self._plan = plan
        self._may_sort = may_sort
        self._scratch = scratch
        self._pieces: list[Window] = []
        self._bytes = 0
        self._runs: list[Path] = []
        self._count = 0

    def add(self, table: pa.Table, path: str) -> None:
        """Add the next piece, of the file at ``path``. Raises NotSorted if it is not sorted but must be."""
        if not table.num_rows:
            return
        window = sorted_piece(table, self._plan.order)
        if window.table is not table and not self._may_sort:
            raise NotSorted(path, -1)
        self._pieces.append(window)
        self._bytes += window.table.nbytes + window.keys.heads.nbytes + window.keys.data.nbytes
        if self._bytes > self._plan.spec.task_memory_bytes // MEMORY_SHARE:
            self._flush()

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows sorted."""
        if not self._runs:
            yield from merge_windows(self._pieces)
            return
        if self._pieces:
            self._flush()
        while len(self._runs) > (at_once := self._runs_at_once()):
            # Only adjacent runs are merged, so that equal rows keep file order.
            groups = [self._runs[start : start + at_once] for start in range(0, len(self._runs), at_once)]
            self._runs = [self._joined(group) for group in groups]
        yield from self._merged(self._runs)

    def _runs_at_once(self) -> int:
        totals = self._plan.totals
        row_bytes = 2 * totals.pages_bytes // max(totals.rows, 1) + 64
        return max(self._plan.spec.task_memory_bytes // (MEMORY_SHARE * SPILL_ROWS * row_bytes), 2)

    def _flush(self) -> None:
        self._runs.append(self._written(merge_windows(self._pieces)))
        self._pieces, self._bytes = [], 0

    def _joined(self, runs: Sequence[Path]) -> Path:
        if len(runs) == 1:
            return runs[0]
        joined = self._written(self._merged(runs))
        for run in runs:
            run.unlink()
        return joined

    def _merged(self, runs: Sequence[Path]) -> Iterator[pa.Table]:
        return merge_sorted([_spilled(run) for run in runs], self._plan.order, [run.name for run in runs])

    def _written(self, tables: Iterable[pa.Table]) -> Path:
        path = self._scratch / f"run-{self._count}.arrow"
        self._count += 1
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, self._plan.schema) as writer:
            for table in tables:
                writer.write_table(table, max_chunksize=SPILL_ROWS)
        return path


def _spilled(path: Path) -> Iterator[pa.Table]:
    """Yield the batches of a spilled run."""
    with pa.OSFile(str(path), "rb") as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(number)])
