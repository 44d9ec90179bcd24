"""Jobs of the catalog lane over small states, with their runs in the store."""

from __future__ import annotations

from collections.abc import Sequence

from engine.catalog.files import CatalogFiles
from engine.catalog.layout import SplitRules
from engine.catalog.metarange import Metarange
from engine.catalog.model import Interval
from engine.catalog.runs import write_run
from engine.protocol.catalog_jobs import CatalogCompactSpec, LayerFile
from tests.engine.catalog.factories import Changes, row


def compact_spec(
    files: CatalogFiles,
    base: Metarange,
    layers: Sequence[tuple[Changes, Sequence[Interval]]],
    rules: SplitRules,
    *,
    head: Metarange | None = None,
    job: str = "job",
    unit_bytes: int = 1 << 20,
) -> CatalogCompactSpec:
    """A job that applies these layers on the base."""
    found = []
    for number, (changes, intervals) in enumerate(layers):
        data = bytearray()
        info = write_run((row(key, value) for key, value in sorted(changes.items())), data.extend)
        key = f"{files.prefix}scratch/{job}/{number}"
        files.store.put(key, bytes(data))
        found.append(
            LayerFile(
                key=key,
                rows=info.rows,
                file_bytes=info.file_bytes,
                tail_bytes=info.tail_bytes,
                intervals=tuple(intervals),
            )
        )
    return CatalogCompactSpec(
        job=job,
        tenant="tenant",
        prefix=files.prefix,
        base=base.id,
        head=(head or base).id,
        layers=tuple(found),
        bytes_min=rules.bytes_min,
        bytes_max=rules.bytes_max,
        every=rules.every,
        borders_every=rules.borders_every,
        unit_bytes=unit_bytes,
        task_memory_bytes=1 << 20,
    )
