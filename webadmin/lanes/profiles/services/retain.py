"""Retention: drop data that is older than its tenant keeps it; see ``engine.lanes.profiles.plan.retention``.

A dry run only reads. A run works part by part, each in its own command; the rule is checked again for every single
block while the head is held, and only blocks named by id are removed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db.models import Count, F, Max, Q, QuerySet, Sum

from engine.core import ulids
from engine.lanes.profiles.plan.retention import (
    DAY_MS,
    GRACE_MS,
    SLICES_PER_RUN,
    RetentionPlan,
    RetentionPolicy,
    RetentionSlice,
    is_expired,
    plan_retention,
)
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.models import Block, Dataset, LegalHold, RemovalCause, RetentionRule
from webadmin.lanes.profiles.registration import PARTITION_MS
from webadmin.lanes.profiles.services.remove_blocks import (
    drop_blocks,
    emptied,
    finish_removal,
    named,
    removable,
    start_removal,
    trim_segments,
)
from webadmin.lanes.profiles.states import LIVE_STATES
from webadmin.schedule.command_log import read_time
from webadmin.schedule.services.operation import operation

log = logging.getLogger(__name__)

BLOCKS_PER_COMMAND = 200
"""Maximum number of removals per command, which bounds how long the head is held."""
ALL_TENANTS = ""


class Places(NamedTuple):
    """The parts of the index to search: starts of partitions, and shards."""

    starts: set[int]
    shards: set[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredPart:
    """An expired part of the index: the number of blocks (or segments, which may only be trimmed) and their bytes."""

    part: RetentionSlice
    blocks: int
    bytes: int
    marker_ms: int

    def to_json(self) -> dict[str, Any]:
        """Return the part as commands and API show it."""
        return {
            "tenant": self.part.tenant,
            "shard": self.part.shard,
            "partition_start_ms": self.part.partition_start_ms,
            "in_segments": self.part.in_segments,
            "newest_data_ms": self.part.max_time_ms,
            "kept_from_ms": self.marker_ms,
            "blocks": self.blocks,
            "bytes": self.bytes,
        }


@dataclass(slots=True, kw_only=True)
class RetentionReport:
    """Expired parts, the oldest first, and the results; a dry run changes nothing."""

    is_dry_run: bool
    expired: tuple[ExpiredPart, ...]
    left_for_later: int
    held_tenants: tuple[str, ...] = ()
    dropped_blocks: int = 0
    dropped_bytes: int = 0
    trimmed_segments: int = 0
    command_indexes: list[int] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the report as commands and API show it."""
        return {
            "dry_run": self.is_dry_run,
            "expired": [part.to_json() for part in self.expired],
            "left_for_later": self.left_for_later,
            "held_tenants": list(self.held_tenants),
            "dropped_blocks": self.dropped_blocks,
            "dropped_bytes": self.dropped_bytes,
            "trimmed_segments": self.trimmed_segments,
            "commands": self.command_indexes,
        }


def retention_policy() -> RetentionPolicy:
    """Return the rules and holds in force; without a row, the default is 31 days."""
    keep_ms = {row.tenant: row.keep_days * DAY_MS for row in RetentionRule.objects.all()}
    default_ms = keep_ms.pop(ALL_TENANTS, RetentionPolicy().default_ms)
    held = LegalHold.objects.filter(ended_at=None).values_list("tenant", flat=True)
    return RetentionPolicy(default_ms=default_ms, tenants=keep_ms, held=frozenset(held))


def apply_retention(
    *,
    context: ActionContext,
    count_max: int = SLICES_PER_RUN,
    at_ms: int | None = None,
    policy: RetentionPolicy | None = None,
) -> RetentionReport:
    """Drop what is older than its tenant keeps it, the oldest first, at most ``count_max`` parts of the index.

    Time is the database's wall-clock time, like the time of data. A dry run may use another time (``at_ms``) or other
    rules (``policy``).
    """
    policy = policy if policy is not None and context.is_dry_run else retention_policy()
    now_ms = at_ms if at_ms is not None and context.is_dry_run else read_time().wall_ms
    sizes = _old_slices(policy, now_ms)
    plan: RetentionPlan = plan_retention(sizes, policy, now_ms=now_ms, count_max=count_max)
    report = RetentionReport(
        is_dry_run=context.is_dry_run,
        expired=tuple(_expired_part(part, sizes[part], policy, now_ms) for part in plan.expired),
        left_for_later=plan.left_for_later,
        held_tenants=tuple(sorted(policy.held)),
    )
    if not context.is_dry_run:
        for expired in report.expired:
            _drop_part(expired, context, report)
        log.info(
            "retention_applied blocks=%d segments_trimmed=%d left=%d",
            report.dropped_blocks,
            report.trimmed_segments,
            report.left_for_later,
        )
    return report


def past_retention(block_ids: Collection[int], *, now_ms: int) -> set[int]:
    """Return the row ids of the live blocks of which retention leaves nothing: they are not merged first.

    A segment is among them only if the data of all its tenants has expired; otherwise the rest is merged.
    """
    policy = retention_policy()
    blocks = Block.objects.live().filter(id__in=block_ids).order_by()
    places = {
        id: (start, shard, tenant)
        for id, start, shard, tenant in blocks.values_list("id", "partition_start_ms", "shard", "tenant__name")
    }
    among = Places({start for start, _, _ in places.values()}, {shard for _, shard, _ in places.values()})
    expired = {
        (part.partition_start_ms, part.shard, part.tenant, part.in_segments)
        for part in _old_slices(policy, now_ms, among)
        if is_expired(part, policy, now_ms=now_ms)
    }
    if not expired:
        return set()
    datasets = Dataset.objects.filter(block__in=[id for id, (_, _, tenant) in places.items() if tenant is None])
    tenants: defaultdict[int, set[str]] = defaultdict(set)
    for block_id, tenant in datasets.order_by().values_list("block_id", "tenant__name").distinct():
        tenants[block_id].add(tenant)
    return {
        id
        for id, (start, shard, tenant) in places.items()
        if (tenant is not None and (start, shard, tenant, False) in expired)
        or (tenants[id] and all((start, shard, name, True) in expired for name in tenants[id]))
    }


def _expired_part(part: RetentionSlice, size: tuple[int, int], policy: RetentionPolicy, now_ms: int) -> ExpiredPart:
    marker_ms = policy.marker_ms(part.tenant, now_ms)
    assert marker_ms is not None, "only what has a marker expires"
    return ExpiredPart(part=part, blocks=size[0], bytes=size[1], marker_ms=marker_ms)


def _old_slices(
    policy: RetentionPolicy, now_ms: int, places: Places | None = None
) -> dict[RetentionSlice, tuple[int, int]]:
    """Return the slices whose partition has expired for a tenant, with blocks and bytes.

    All slices, or those in ``places``.
    """
    newest_ms = policy.newest_marker_ms(now_ms)
    if newest_ms is None:
        return {}
    last_start_ms = newest_ms - PARTITION_MS - GRACE_MS
    kept = sorted(policy.held | {tenant for tenant, keep_ms in policy.tenants.items() if keep_ms == 0})
    finite = sorted(tenant for tenant, keep_ms in policy.tenants.items() if keep_ms > 0)
    found: dict[RetentionSlice, tuple[int, int]] = {}
    first_start_ms = 0
    if places is not None and places.starts:
        first_start_ms, last_start_ms = min(places.starts), min(max(places.starts), last_start_ms)
    old = (first_start_ms, last_start_ms)
    for in_segments, rows in ((False, _block_slices(*old)), (True, _segment_slices(*old))):
        names = Q(slice_tenant__in=finite) if policy.default_ms == 0 else Q()
        if places is not None:
            names &= Q(slice_start__in=places.starts, slice_shard__in=places.shards)
        for row in rows.filter(names).exclude(slice_tenant__in=kept):
            part = RetentionSlice(
                partition_start_ms=row["slice_start"],
                partition_ms=PARTITION_MS,
                tenant=row["slice_tenant"],
                shard=row["slice_shard"],
                max_time_ms=row["newest"],
                in_segments=in_segments,
            )
            found[part] = (row["blocks"], row["bytes"])
    return found


def _block_slices(first_start_ms: int, last_start_ms: int) -> QuerySet[Any]:
    live = Block.objects.live().made_between(first_start_ms, last_start_ms + PARTITION_MS)
    blocks = live.filter(tenant__isnull=False, partition_start_ms__lte=last_start_ms).annotate(
        slice_start=F("partition_start_ms"), slice_tenant=F("tenant__name"), slice_shard=F("shard")
    )
    return _summed(blocks, blocks=Count("id"))


def _segment_slices(first_start_ms: int, last_start_ms: int) -> QuerySet[Any]:
    datasets = Dataset.objects.filter(
        block__state__in=LIVE_STATES,
        block__tenant=None,
        block__ulid__gte=ulids.first(first_start_ms),
        block__ulid__lt=ulids.first(last_start_ms + PARTITION_MS),
        block__partition_start_ms__lte=last_start_ms,
    ).annotate(
        slice_start=F("block__partition_start_ms"), slice_tenant=F("tenant__name"), slice_shard=F("block__shard")
    )
    return _summed(datasets, blocks=Count("block_id", distinct=True))


def _summed(rows: QuerySet[Any], *, blocks: Count) -> QuerySet[Any]:
    grouped = rows.order_by().values("slice_start", "slice_tenant", "slice_shard")
    sums: QuerySet[Any] = grouped.annotate(newest=Max("max_time_ms"), blocks=blocks, bytes=Sum("size_bytes"))
    return sums


def _drop_part(expired: ExpiredPart, context: ActionContext, report: RetentionReport) -> None:
    """Drop a part's blocks, or trim its segments, one command per batch; leased blocks are left for a later run."""
    last_id = 0
    while True:
        ids = _block_ids(expired, last_id)
        if not ids:
            return
        last_id = ids[-1]
        with operation() as run:
            if LegalHold.objects.filter(tenant=expired.part.tenant, ended_at=None).exists():
                return  # the hold was placed after planning
            blocks = removable(ids)
            if expired.part.in_segments:
                gone = _gone_positions(expired, [block.id for block in blocks])
                blocks = [block for block in blocks if block.id in gone]
            else:
                blocks = [block for block in blocks if block.max_time_ms < expired.marker_ms]
            if not blocks:
                continue
            removal = start_removal(
                run,
                context,
                RemovalCause.RETENTION,
                "retention",
                target=expired.part.tenant,
                detail={
                    "part": expired.to_json(),
                    "dropped": named(emptied(blocks, gone) if expired.part.in_segments else blocks),
                    "trimmed": named(blocks) if expired.part.in_segments else [],
                },
            )
            if expired.part.in_segments:
                trim_segments(removal, blocks, gone)
            else:
                drop_blocks(removal, blocks)
            finish_removal(run, removal)
        report.dropped_blocks += len(removal.dropped)
        report.dropped_bytes += removal.dropped_bytes
        report.trimmed_segments += len(removal.trimmed)
        report.command_indexes.append(run.index)


def _block_ids(expired: ExpiredPart, last_id: int) -> list[int]:
    part = expired.part
    from_ms = part.partition_start_ms
    blocks = Block.objects.live().made_between(from_ms, from_ms + PARTITION_MS)
    blocks = blocks.filter(partition_start_ms=from_ms, shard=part.shard, id__gt=last_id)
    if part.in_segments:
        blocks = blocks.filter(tenant=None, id__in=Dataset.objects.filter(tenant__name=part.tenant).values("block_id"))
    else:
        blocks = blocks.filter(tenant__name=part.tenant)
    return list(blocks.order_by("id").values_list("id", flat=True)[:BLOCKS_PER_COMMAND])


def _gone_positions(expired: ExpiredPart, segment_ids: Iterable[int]) -> dict[int, list[int]]:
    """Return, by segment, the positions of the tenant's expired datasets."""
    datasets = Dataset.objects.filter(
        block__in=list(segment_ids), tenant__name=expired.part.tenant, max_time_ms__lt=expired.marker_ms
    )
    gone: defaultdict[int, list[int]] = defaultdict(list)
    for block_id, position in datasets.values_list("block_id", "position"):
        gone[block_id].append(position)
    return dict(gone)
