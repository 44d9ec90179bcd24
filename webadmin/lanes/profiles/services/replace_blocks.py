"""Replace the sources of finished jobs by their results, as part of the transaction that completes the jobs.

A fixed number of statements for any number of jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from webadmin.base.database.dialect import among, insert_rows, pipeline, prepared_cursor, reserve_ids
from webadmin.lanes.profiles.models import Block, BlockLineage, RemovalCause, Tombstone
from webadmin.lanes.profiles.planning.level_queues import QueueChanges
from webadmin.lanes.profiles.registration import BlockRegistration
from webadmin.lanes.profiles.services.insert_blocks import InsertMoment, InternedNames, insert_blocks, record_ids
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.errors import SourcesChanged

LINEAGE_COLUMNS = ("result_id", "source_id", "job_id")
TOMBSTONE_COLUMNS = (
    *("block_id", "job_id", "cause", "command_index", "created_at_ms", "eligible_at_ms"),
    *("retry_at_ms", "attempts", "last_error"),
)

_RETIRE = f"""
UPDATE profiles_block SET state = '{BlockState.REPLACED.value}', removed_command_index = %s
WHERE {{owned}} AND state = '{BlockState.OWNED.value}' RETURNING id, owner_job_id
"""  # noqa: S608


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The replacement of one job: ``sources`` maps the row id of each source to the tenants in it."""

    job_id: int
    sources: Mapping[int, frozenset[str]]
    results: Sequence[BlockRegistration]


def replace_blocks(
    replacements: Sequence[Replacement],
    interned: InternedNames,
    moment: InsertMoment,
    *,
    eligible_at_ms: int,
    changes: QueueChanges,
) -> None:
    """Replace the sources by the results. Raises SourcesChanged unless every source is live and owned by its job."""
    if not replacements:
        return
    results = [result for replacement in replacements for result in replacement.results]
    with pipeline():
        ids = interned.block_ids[: len(results)] or reserve_ids(Block, len(results))
        retired = _retire_sources(replacements, moment)  # runs while the rows below are built
        insert_blocks(results, interned, moment, changes, ids=ids)
        record_ids(results, moment)
        of_results = iter(ids)
        lineage = [row for replacement in replacements for row in _lineage(replacement, of_results)]
        insert_rows(BlockLineage, LINEAGE_COLUMNS, lineage)
        tombstones = [
            (
                *(block_id, replacement.job_id, RemovalCause.REPLACED.value),
                *(moment.command_index, moment.command_time_ms, eligible_at_ms, 0, 0, ""),
            )
            for replacement in replacements
            for block_id in replacement.sources
        ]
        insert_rows(Tombstone, TOMBSTONE_COLUMNS, tombstones)
    _check_sources(replacements, retired.fetchall())


def _retire_sources(replacements: Sequence[Replacement], moment: InsertMoment) -> CursorWrapper:
    """Mark all blocks that the jobs own as replaced; each returned row is a block and its job."""
    owned, values = among(Block, "owner_job_id", [replacement.job_id for replacement in replacements])
    cursor = prepared_cursor()
    cursor.execute(_RETIRE.format(owned=owned), [moment.command_index, *values])
    return cursor


def _check_sources(replacements: Sequence[Replacement], retired: Iterable[tuple[int, int]]) -> None:
    """Raise SourcesChanged unless the sources are the retired blocks."""
    sources = {(block_id, replacement.job_id) for replacement in replacements for block_id in replacement.sources}
    owned = {(block_id, job_id) for block_id, job_id in retired}
    if owned != sources:
        changed = sorted({job_id for _, job_id in owned ^ sources})
        raise SourcesChanged(f"jobs {changed}: {len(owned & sources)} of {len(sources)} sources are still theirs")


def _lineage(replacement: Replacement, result_ids: Iterator[int]) -> list[tuple[int, int, int]]:
    return [
        (result_id, source_id, replacement.job_id)
        for registration, result_id in zip(replacement.results, result_ids, strict=False)
        for source_id, tenants in replacement.sources.items()
        if registration.meta.tenant in tenants
    ]
