"""Apply layers to a metarange: the merge behind a compaction, a commit and an import.

``apply_layers`` runs in one process. A Spark job runs the units of the same plan elsewhere (``run_unit``) and ends with
the same ``finish``. Memory is bounded by the file being written and a few blocks of each layer and of the base's
ranges, whatever the sizes of layers and base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from engine.core.errors import LithifyError
from engine.formats.ranges.entry_blocks import merge_blocks
from engine.formats.ranges.layout import BLOCK_BYTES, Kind, MergeCounts, SplitRules
from engine.formats.ranges.metarange import Metarange
from engine.formats.ranges.model import Interval
from engine.formats.ranges.range_file import FileBuilder, FileInfo
from engine.lanes.catalog.apply_plan import UNIT_BYTES, ApplyPlan, Unit, plan_apply
from engine.lanes.catalog.files import CatalogFiles
from engine.lanes.catalog.intervals import union_of
from engine.lanes.catalog.runs import READ_BLOCKS, Layer

MEMORY_BYTES = 64 << 20
"""Bytes of all layers together that are read ahead."""


class ApplyInconsistent(LithifyError):
    """The written ranges do not hold the number of entries that base and changes give; they must not be published."""

    code = "apply_inconsistent"


@dataclass(frozen=True, slots=True)
class UnitResult:
    """The files of one unit, the counts of its merge, and the bytes written (files that existed are not counted)."""

    ranges: tuple[FileInfo, ...]
    counts: MergeCounts
    bytes_written: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyResult:
    """The new metarange and the cost of its creation. ``counts.removed`` includes the entries of dropped ranges.

    ``written`` holds the ids of the ranges that are not in the base.
    """

    metarange: Metarange
    counts: MergeCounts
    ranges_kept: int
    ranges_dropped: int
    written: frozenset[str] = field(default_factory=frozenset)
    bytes_written: int = 0


def apply_layers(
    files: CatalogFiles,
    base: Metarange,
    layers: Sequence[Layer],
    *,
    rules: SplitRules | None = None,
    unit_bytes: int = UNIT_BYTES,
    memory_bytes: int = MEMORY_BYTES,
    run_all: Callable[[Callable[[Unit], UnitResult], Iterable[Unit]], Iterable[UnitResult]] = map,
) -> ApplyResult:
    """Apply layers (newest first) to the base; write the new ranges and the metarange.

    ``run_all`` maps the work over units; results may come in any order. Returns the base itself if nothing changes.
    """
    rules = rules or SplitRules()
    plan = plan_apply(base, layers, rules, unit_bytes)

    def run(unit: Unit) -> UnitResult:
        return run_unit(files, base, layers, unit, rules=rules, memory_bytes=memory_bytes)

    return finish(files, base, plan, run_all(run, plan.units))


def run_unit(
    files: CatalogFiles,
    base: Metarange,
    layers: Sequence[Layer],
    unit: Unit,
    *,
    rules: SplitRules | None = None,
    memory_bytes: int = MEMORY_BYTES,
) -> UnitResult:
    """Write the ranges of one unit."""
    ranges: list[FileInfo] = []
    known = {info.id for info in base.ranges[unit.first : unit.end]}
    written = 0

    def keep(info: FileInfo, data: bytes) -> None:
        nonlocal written
        if info.id not in known:
            files.put(Kind.RANGE, info, data)
            written += len(data)
        ranges.append(info)

    at_once = max(1, min(READ_BLOCKS, memory_bytes // (BLOCK_BYTES * max(1, len(layers)))))
    counts = merge_blocks(
        [layer.run.blocks(unit.after, at_once=at_once) for layer in layers],
        _blocks_of(files, base.ranges[unit.first : unit.end]),
        hidden_of(layers),
        FileBuilder(Kind.RANGE, keep),
        rules or SplitRules(),
        unit.after,
        unit.upto,
    )
    return UnitResult(tuple(ranges), counts, written)


def finish(files: CatalogFiles, base: Metarange, plan: ApplyPlan, results: Iterable[UnitResult]) -> ApplyResult:
    """Combine new and kept ranges, check the number of entries, and write the metarange.

    Raises ApplyInconsistent if the number of entries is not the expected one.
    """
    ranges = [base.ranges[number] for number in plan.kept]
    counts = MergeCounts(removed=sum(base.ranges[number].rows for number in plan.dropped))
    bytes_written = done = 0
    for result in results:
        ranges.extend(result.ranges)
        counts += result.counts
        bytes_written += result.bytes_written
        done += 1
    ranges.sort(key=lambda info: info.first_key)
    expected = base.rows + counts.added - counts.removed
    if done != len(plan.units) or sum(info.rows for info in ranges) != expected:
        raise ApplyInconsistent(f"{sum(info.rows for info in ranges)} entries in the new ranges, expected {expected}")
    metarange = base
    if [info.id for info in ranges] != [info.id for info in base.ranges]:
        metarange, size = files.write_metarange(ranges)
        bytes_written += size
    return ApplyResult(
        metarange=metarange,
        counts=counts,
        ranges_kept=len(plan.kept),
        ranges_dropped=len(plan.dropped),
        written=frozenset(info.id for info in ranges) - {info.id for info in base.ranges},
        bytes_written=bytes_written,
    )


def hidden_of(layers: Sequence[Layer]) -> list[tuple[Interval, ...]]:
    """Return the intervals that hide rows of each layer (those of newer layers), and last those that hide the base."""
    hidden: list[tuple[Interval, ...]] = [()]
    for layer in layers:
        hidden.append(union_of((*hidden[-1], *layer.intervals)))
    return hidden


def _blocks_of(files: CatalogFiles, ranges: Sequence[FileInfo]) -> Iterator[bytes]:
    for info in ranges:
        yield from files.whole_blocks(info)
