"""Input of a tenant's plan: its blocks, the groups that jobs merge, unfinished uploads."""

from __future__ import annotations

from collections import defaultdict

from django.db.models import Q

from engine.lanes.tsdb.plan.model import IntervalBlock, SlotState, TakenGroup
from engine.schedule.model import JobState
from webadmin.lanes.tsdb.models import Block, BucketTenant, Folder, Group
from webadmin.lanes.tsdb.states import PLANNABLE, BlockState, GroupState

_COLUMNS = (
    *("ulid", "min_time_ms", "max_time_ms", "level", "group_key", "series", "samples", "index_bytes", "size_bytes"),
    *("uploaded_at_ms", "origins", "partition", "partitions", "produced_by", "time_range_ms", "no_compact"),
    *("quarantined", "is_failed", "tombstones", "hints"),
)


def partial_uploads(folder_id: int) -> list[str]:
    """Return the ULIDs of blocks without ``meta.json`` in the folder's last scan, without loading its marks."""
    found = Folder.objects.filter(id=folder_id).values_list("examined__partial", flat=True).get()
    return [each["ulid"] for each in found or []]


def read_blocks(tenant: BucketTenant) -> list[IntervalBlock]:
    """Return the blocks that readers of the bucket need: neither superseded nor marked for deletion."""
    rows = Block.objects.filter(tenant=tenant, state__in=PLANNABLE, visible_at_ms__isnull=False)
    blocks = []
    for row in rows.order_by().values_list(*_COLUMNS):
        values = dict(zip(_COLUMNS, row, strict=True))
        origins, hints = values.pop("origins"), values.pop("hints")
        blocks.append(IntervalBlock(sources=tuple(origins), hints=tuple(hints), **values))
    return blocks


def read_taken(tenant: BucketTenant) -> list[TakenGroup]:
    """Return the open groups with the states of their jobs, and the done groups that are not yet published."""
    unseen = Q(state=GroupState.DONE, parts__result__state=BlockState.LIVE, parts__result__visible_at_ms=None)
    found = Group.objects.filter(Q(state=GroupState.OPEN) | unseen, tenant=tenant)
    groups = {group.id: group for group in found.distinct()}
    ulids: defaultdict[int, list[str]] = defaultdict(list)
    owned = Block.objects.filter(group__in=groups, state=BlockState.OWNED).order_by("min_time_ms", "ulid")
    for group_id, ulid in owned.values_list("group_id", "ulid"):
        ulids[group_id].append(ulid)
    states: defaultdict[int, set[str]] = defaultdict(set)
    for group_id, state in Group.objects.filter(id__in=groups).values_list("id", "parts__job__state"):
        states[group_id].add(state)
    return [
        TakenGroup(
            group_key=group.group_key,
            range_ms=group.range_ms,
            start_ms=group.start_ms,
            ulids=tuple(ulids[group.id]),
            state=_slot_state(states[group.id]),
            why=f"group {group.id} {_in_words(states[group.id])}",
        )
        for group in groups.values()
    ]


def _slot_state(states: set[str]) -> SlotState:
    if JobState.PARKED.value in states:
        return SlotState.WAITING
    is_ready = JobState.WAITING.value in states and JobState.LEASED.value not in states
    return SlotState.READY if is_ready else SlotState.RUNNING


def _in_words(states: set[str]) -> str:
    if JobState.PARKED.value in states:
        return "has a parked job"
    if states == {JobState.DONE.value}:
        return "is done, and its result is being shown to the bucket"
    return "is being merged" if JobState.LEASED.value in states else "waits for a worker"
