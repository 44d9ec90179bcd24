"""Run a job of the catalog lane: apply stored runs to a metarange, in one process or unit by unit on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from engine.core.errors import MergeCancelled
from engine.formats.ranges.layout import MergeCounts, SplitRules
from engine.formats.ranges.metarange import Metarange, info_of, row_of
from engine.lanes.catalog.apply import ApplyResult, UnitResult, finish, run_unit
from engine.lanes.catalog.apply_plan import ApplyPlan, Unit, plan_apply
from engine.lanes.catalog.diff import diff_states
from engine.lanes.catalog.files import CatalogFiles
from engine.lanes.catalog.jobs import CatalogCompactResult, CatalogCompactSpec, of_text, to_text
from engine.lanes.catalog.runs import Layer, RunInfo, stored_run
from engine.lanes.catalog.state_reader import StateReader
from engine.storage import ObjectStore


@dataclass(frozen=True, slots=True)
class CompactJob:
    """A job specification with its base metarange and layers opened."""

    spec: CatalogCompactSpec
    files: CatalogFiles
    base: Metarange
    layers: tuple[Layer, ...]

    @classmethod
    def open(cls, spec: CatalogCompactSpec, store: ObjectStore) -> CompactJob:
        """Read the base metarange. Layers are read on demand."""
        files = CatalogFiles(store, spec.prefix)
        layers = tuple(
            Layer(stored_run(store, each.key, RunInfo(each.rows, each.file_bytes, each.tail_bytes)), each.intervals)
            for each in spec.layers
        )
        return cls(spec, files, files.read_metarange(spec.base), layers)

    @property
    def rules(self) -> SplitRules:
        spec = self.spec
        return SplitRules(
            bytes_min=spec.bytes_min, bytes_max=spec.bytes_max, every=spec.every, borders_every=spec.borders_every
        )

    def plan(self) -> ApplyPlan:
        """Return the plan; it is the same in every process."""
        return plan_apply(self.base, self.layers, self.rules, self.spec.unit_bytes)

    def run_unit(self, unit: Unit) -> UnitResult:
        """Write the ranges of a unit."""
        return run_unit(
            self.files, self.base, self.layers, unit, rules=self.rules, memory_bytes=self.spec.task_memory_bytes
        )

    def finish(self, plan: ApplyPlan, results: Iterable[UnitResult]) -> CatalogCompactResult:
        """Write the metarange and compare its content with the head."""
        applied = finish(self.files, self.base, plan, results)
        head = self.files.read_metarange(self.spec.head)
        differences = diff_states(StateReader(self.files, head), StateReader(self.files, applied.metarange))
        return _result(applied, equals_head=next(differences, None) is None)


def run(
    spec: CatalogCompactSpec,
    store: ObjectStore,
    *,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CatalogCompactResult:
    """Run the job in this process, unit by unit. ``progress`` receives done and total bytes of entries.

    Raises MergeCancelled if ``cancelled`` returns true between two units; what was written by then is orphaned.
    """
    job = CompactJob.open(spec, store)
    return run_planned(job, job.plan(), cancelled=cancelled, progress=progress)


def run_planned(
    job: CompactJob,
    plan: ApplyPlan,
    *,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CatalogCompactResult:
    """Run a plan like ``run``."""
    results = []
    done = 0
    for unit in plan.units:
        if cancelled():
            raise MergeCancelled(f"job {job.spec.job} cancelled")
        results.append(job.run_unit(unit))
        done += unit.size
        progress(done, plan.size)
    return job.finish(plan, results)


def unit_to_json(unit: Unit) -> list[Any]:
    """Return a unit in the form that is sent to an executor."""
    return [unit.first, unit.end, to_text(unit.after), to_text(unit.upto), unit.size]


def unit_from_json(data: list[Any]) -> Unit:
    """Read what ``unit_to_json`` wrote."""
    first, end, after, upto, size = data
    return Unit(first=first, end=end, after=of_text(after), upto=of_text(upto), size=size)


def unit_result_to_json(result: UnitResult) -> dict[str, Any]:
    """Return a unit's result in the form that an executor sends back."""
    counts = result.counts
    return {
        "ranges": [[to_text(part) for part in row_of(info)] for info in result.ranges],
        "counts": [
            counts.rows_read,
            counts.kept,
            counts.added,
            counts.changed,
            counts.removed,
            counts.bytes_changed,
        ],
        "bytes_written": result.bytes_written,
    }


def unit_result_from_json(data: dict[str, Any]) -> UnitResult:
    """Read what ``unit_result_to_json`` wrote."""
    rows = [tuple(of_text(part) or b"" for part in row) for row in data["ranges"]]
    ranges = tuple(info_of((key, identity, payload)) for key, identity, payload in rows)
    return UnitResult(ranges, MergeCounts(*data["counts"]), data["bytes_written"])


def _result(applied: ApplyResult, *, equals_head: bool) -> CatalogCompactResult:
    counts = applied.counts
    return CatalogCompactResult(
        metarange=applied.metarange.id,
        equals_head=equals_head,
        written=tuple(sorted(applied.written)),
        rows_read=counts.rows_read,
        added=counts.added,
        changed=counts.changed,
        removed=counts.removed,
        bytes_changed=counts.bytes_changed,
        bytes_written=applied.bytes_written,
        ranges_kept=applied.ranges_kept,
        ranges_dropped=applied.ranges_dropped,
    )
