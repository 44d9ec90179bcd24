"""Jobs of the catalog lane over small states, with their runs in the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from engine.formats.ranges.layout import SplitRules
from engine.formats.ranges.metarange import Metarange
from engine.formats.ranges.model import Interval, Row
from engine.lanes.catalog.apply_plan import UNIT_BYTES
from engine.lanes.catalog.files import CatalogFiles
from engine.lanes.catalog.jobs import CatalogCompactSpec, LayerFile
from engine.lanes.catalog.plan.sensor import PathLimits
from engine.lanes.catalog.runs import write_run
from tests.engine.lanes.catalog.factories import Changes, row


def compact_spec(
    files: CatalogFiles,
    base: Metarange,
    layers: Sequence[tuple[Changes, Sequence[Interval]]],
    rules: SplitRules,
    **fields: Any,
) -> CatalogCompactSpec:
    """A job that applies these layers (newest first) on the base."""
    rows = [[row(key, value) for key, value in sorted(changes.items())] for changes, _ in layers]
    return spec_of_rows(files, base, rows, rules, intervals=[intervals for _, intervals in layers], **fields)


def spec_of_rows(
    files: CatalogFiles,
    base: Metarange,
    layers: Sequence[Iterable[Row]],
    rules: SplitRules,
    *,
    intervals: Sequence[Sequence[Interval]] = (),
    head: Metarange | None = None,
    job: str = "job",
    unit_bytes: int = UNIT_BYTES,
    limits: PathLimits | None = None,
) -> CatalogCompactSpec:
    """A job that applies layers of rows (newest first) on the base; their runs are put into the store."""
    found = []
    limits = limits or PathLimits()
    for number, rows in enumerate(layers):
        data = bytearray()
        info = write_run(rows, data.extend)
        key = f"{files.prefix}scratch/{job}/{number}"
        files.store.put(key, bytes(data))
        covered = tuple(intervals[number]) if intervals else ()
        found.append(LayerFile(key=key, **asdict(info), intervals=covered))
    return CatalogCompactSpec(
        job=job,
        tenant="tenant",
        prefix=files.prefix,
        base=base.id,
        head=(head or base).id,
        layers=tuple(found),
        **asdict(rules),
        unit_bytes=unit_bytes,
        task_memory_bytes=64 << 20,
        here_rows=limits.rows,
        here_bytes=limits.size,
    )
