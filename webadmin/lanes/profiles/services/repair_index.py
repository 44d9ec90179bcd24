"""Remove blocks that the bucket's records name as merged or removed in a history that the database lost.

A database that went back in time has live blocks whose merge was committed and recorded. Their results are in the
bucket and count; so the blocks must be removed, or their data would count twice and jobs would read deleted objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from engine.schedule.model import AttemptOutcome, JobState
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.bucket.lineage import BucketLineage
from webadmin.lanes.profiles.bucket.lineage_objects import BlockName, LineageRecord
from webadmin.lanes.profiles.models import Block, LineageObject, RemovalCause
from webadmin.lanes.profiles.services.remove_blocks import drop_blocks, finish_removal, named, removable, start_removal
from webadmin.lanes.profiles.states import LIVE_STATES, BlockState
from webadmin.schedule.models import Attempt, Job
from webadmin.schedule.services.operation import operation

BLOCKS_PER_COMMAND = 200
NAMES_PER_QUERY = 500
ACTION = "repair_index"


def records_to_follow(records: Sequence[tuple[str, LineageRecord]]) -> list[tuple[str, LineageRecord]]:
    """Return the records without those of a lost history that contradict this index.

    A record contradicts it if the index has merged one of its sources itself: the same data is in its own result then.
    So does a record of a further merge of such results.
    """
    own = _known_keys([key for key, _ in records])
    foreign = [(key, record) for key, record in records if key not in own and record.results]
    live, gone = _by_state({name for _, record in foreign for name in (*record.sources, *record.results)})
    known = live | gone
    open_records = [(key, record) for key, record in foreign if not known.issuperset(record.results)]
    contradicted: set[str] = set()
    merged_elsewhere = set(gone)
    while found := {key: record for key, record in open_records if not merged_elsewhere.isdisjoint(record.sources)}:
        contradicted |= found.keys()
        merged_elsewhere |= {name for record in found.values() for name in record.results} - live
        open_records = [(key, record) for key, record in open_records if key not in found]
    return [(key, record) for key, record in records if key not in contradicted]


def drop_superseded(lineage: BucketLineage, *, actor: str) -> int:
    """Remove the live blocks that records name as replaced and whose results all exist; return how many.

    Running jobs lose such sources like waiting ones: the data is merged already, and the jobs' results are refused.
    """
    live, _ = _by_state(lineage.superseded)
    names = sorted(live)
    dropped = 0
    for start in range(0, len(names), BLOCKS_PER_COMMAND):
        part = set(names[start : start + BLOCKS_PER_COMMAND])
        context = ActionContext(actor=actor, why="a record in the bucket says that they were merged or removed")
        with operation() as run:
            ids = [row_id for row_id, name in _live_rows(part) if name in part]
            _end_leases(ids, now_ms=run.time.now_ms)
            blocks = removable(ids)
            if not blocks:
                continue
            detail = {"dropped": named(blocks)}
            removal = start_removal(
                run, context, RemovalCause.REPAIR, ACTION, target=f"{len(blocks)} blocks", detail=detail
            )
            drop_blocks(removal, blocks)
            finish_removal(run, removal)
        dropped += len(removal.dropped)
    return dropped


def _end_leases(block_ids: Sequence[int], *, now_ms: int) -> None:
    """Revoke the leases of the jobs that own these blocks."""
    owners = Block.objects.filter(id__in=block_ids, state=BlockState.OWNED).values("owner_job")
    jobs = list(Job.objects.filter(id__in=owners, state=JobState.LEASED).values_list("id", flat=True))
    Job.objects.filter(id__in=jobs).update(state=JobState.WAITING, lease_expires_ms=None, progress=None)
    Attempt.objects.filter(job__in=jobs, outcome=AttemptOutcome.RUNNING).update(
        outcome=AttemptOutcome.EXPIRED, ended_at_ms=now_ms
    )


def _known_keys(keys: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for part in _parts(keys):
        found.update(LineageObject.objects.filter(key__in=part).values_list("key", flat=True))
    return found


def _by_state(names: Collection[BlockName]) -> tuple[set[BlockName], set[BlockName]]:
    """Return which of these blocks are live in the index, and which are in it but not live."""
    live: set[BlockName] = set()
    gone: set[BlockName] = set()
    states = {state.value for state in LIVE_STATES}
    for part in _parts(sorted({ulid for _, ulid in names})):
        rows = Block.objects.filter(ulid__in=part).values_list("shard", "ulid", "state")
        for shard, ulid, state in rows:
            if (shard, ulid) in names:
                (live if state in states else gone).add((shard, ulid))
    return live, gone


def _live_rows(names: Collection[BlockName]) -> Iterable[tuple[int, BlockName]]:
    rows = Block.objects.live().filter(ulid__in=[ulid for _, ulid in names]).values_list("id", "shard", "ulid")
    return [(row_id, (shard, ulid)) for row_id, shard, ulid in rows]


def _parts(values: Sequence[str]) -> Iterable[Sequence[str]]:
    return (values[start : start + NAMES_PER_QUERY] for start in range(0, len(values), NAMES_PER_QUERY))
