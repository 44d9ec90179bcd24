"""Swaps a finished job's sources for its results. Part of the transaction that completes the job, never on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from webadmin.index.errors import SourcesChanged
from webadmin.index.models import Block, BlockLineage, Tombstone
from webadmin.index.registration import BlockRegistration
from webadmin.index.services.insert_blocks import (
    ROWS_PER_INSERT,
    InsertMoment,
    InternedNames,
    insert_blocks,
    remember_ids,
)
from webadmin.index.states import BlockState
from webadmin.schedule.level_queues import QueueChanges


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A job's swap: ``sources`` maps the row id of each source to the tenants in it."""

    job_id: int
    sources: Mapping[int, frozenset[str]]
    results: Sequence[BlockRegistration]


def replace_blocks(
    replacement: Replacement,
    interned: InternedNames,
    moment: InsertMoment,
    *,
    eligible_at_ms: int,
    changes: QueueChanges,
) -> None:
    """Replace the sources by the results. Raises SourcesChanged unless every source is live and owned by the job."""
    owned = Block.objects.filter(owner_job_id=replacement.job_id, state=BlockState.OWNED)
    replaced = owned.filter(id__in=replacement.sources).update(
        state=BlockState.REPLACED, removed_command_index=moment.command_index
    )
    if replaced != len(replacement.sources) or owned.exists():
        raise SourcesChanged(
            f"job {replacement.job_id}: {replaced} of {len(replacement.sources)} sources are still its"
        )
    remember_ids(replacement.results, moment)
    results = insert_blocks(replacement.results, interned, moment, changes)
    BlockLineage.objects.bulk_create(_lineage(replacement, results), batch_size=ROWS_PER_INSERT)
    tombstones = [
        Tombstone(
            block_id=block_id,
            job_id=replacement.job_id,
            command_index=moment.command_index,
            created_at_ms=moment.command_time_ms,
            eligible_at_ms=eligible_at_ms,
        )
        for block_id in replacement.sources
    ]
    Tombstone.objects.bulk_create(tombstones, batch_size=ROWS_PER_INSERT)


def _lineage(replacement: Replacement, results: Sequence[int]) -> list[BlockLineage]:
    return [
        BlockLineage(result_id=result, source_id=source_id, job_id=replacement.job_id)
        for result, registration in zip(results, replacement.results, strict=True)
        for source_id, tenants in replacement.sources.items()
        if registration.meta.tenant in tenants
    ]
