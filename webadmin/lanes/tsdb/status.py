"""Status of buckets and tenants, in numbers and as a state, for pages, commands and the front page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from engine.schedule.model import JobState
from webadmin.adminkit.state_label import StateLabel
from webadmin.lanes.tsdb.models import BlockQuarantine, Bucket, BucketTenant, OutboxStep, Part
from webadmin.lanes.tsdb.progress import TenantProgress
from webadmin.lanes.tsdb.states import GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketStatus:
    """Status of one bucket: ``waiting`` blocks to merge in ``compactions`` merges, and jobs of open groups by state.

    ``refused`` is the number of tenants that are not planned, without deleted tenants and paused buckets;
    ``failing_writes`` the number of open outbox steps that the bucket has refused. ``too_large`` is the number of
    groups not planned because they would have to be split into partitions, ``parts`` the number of published blocks
    that are partitions of a group; both only in buckets that do not allow partitions.
    """

    bucket: Bucket
    tenants: int
    refused: int
    waiting: int
    compactions: int
    running: int
    queued: int
    parked: int
    kept_out: int
    to_write: int
    failing_writes: int
    too_large: int
    parts: int

    @property
    def is_busy(self) -> bool:
        """Return whether anything runs, waits for a worker, or is to be merged or written."""
        return bool(self.running or self.queued or self.compactions or self.to_write)


def bucket_statuses(of: Sequence[Bucket] | None = None) -> list[BucketStatus]:
    """Return the statuses of all buckets by name, or of those in ``of``.

    Uses a fixed number of queries, none over all blocks.
    """
    buckets = list(Bucket.objects.order_by("name")) if of is None else list(of)
    if not buckets:
        return []
    is_refused = ~Q(refusal="") & Q(is_deleted=False, bucket__is_paused=False)
    tenants = _by_bucket(
        BucketTenant.objects.all(),
        "bucket_id",
        count=Count("id"),
        refused=Count("id", filter=is_refused),
        waiting_sum=Sum("waiting"),
        compactions_sum=Sum("compactions"),
        too_large_sum=Sum("too_large"),
        parts_sum=Sum("parts"),
    )
    steps = _by_bucket(
        OutboxStep.objects.filter(done_at_ms=None),
        "tenant__bucket_id",
        count=Count("id"),
        failing=Count("id", filter=~Q(last_error="")),
    )
    kept_out = _by_bucket(
        BlockQuarantine.objects.filter(released_at_ms=None), "block__tenant__bucket_id", count=Count("id")
    )
    jobs: defaultdict[int, dict[str, int]] = defaultdict(dict)
    parts = Part.objects.filter(group__state=GroupState.OPEN).order_by()
    for row in parts.values("group__tenant__bucket_id", "job__state").annotate(count=Count("id")):
        jobs[row["group__tenant__bucket_id"]][row["job__state"]] = row["count"]
    return [
        BucketStatus(
            bucket=bucket,
            tenants=tenants[bucket.id].get("count", 0),
            refused=tenants[bucket.id].get("refused", 0),
            waiting=tenants[bucket.id].get("waiting_sum", 0),
            compactions=tenants[bucket.id].get("compactions_sum", 0),
            running=jobs[bucket.id].get(JobState.LEASED.value, 0),
            queued=jobs[bucket.id].get(JobState.WAITING.value, 0),
            parked=jobs[bucket.id].get(JobState.PARKED.value, 0),
            kept_out=kept_out[bucket.id].get("count", 0),
            to_write=steps[bucket.id].get("count", 0),
            failing_writes=steps[bucket.id].get("failing", 0),
            too_large=tenants[bucket.id].get("too_large_sum", 0),
            parts=tenants[bucket.id].get("parts_sum", 0),
        )
        for bucket in buckets
    ]


def _by_bucket(rows: QuerySet[Any], key: str, **sums: Any) -> defaultdict[int, dict[str, int]]:
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    found.update({row[key]: row for row in rows.order_by().values(key).annotate(**sums)})
    return found


def bucket_state(one: BucketStatus) -> StateLabel:
    """Return the state of a bucket: the first that applies."""
    if one.bucket.scan_error:
        return StateLabel("no answer", "bad", one.bucket.scan_error)
    if one.bucket.is_paused:
        return StateLabel("paused", "warn")
    if one.failing_writes:
        return StateLabel("refuses writes", "bad")
    if one.parked:
        return StateLabel("needs attention", "bad", "jobs are parked after failures")
    if one.is_busy:
        return StateLabel("compacting", "busy")
    if one.too_large:
        return StateLabel(
            "too large", "warn", "groups would have to be cut into parts, which the bucket does not allow"
        )
    return StateLabel("caught up", "good") if one.bucket.scanned_at_ms else StateLabel("not scanned yet", "quiet")


def tenant_state(each: TenantProgress) -> StateLabel:
    """Return the state of a tenant of a bucket: the first that applies."""
    if each.refusal:
        return StateLabel("refused", "bad", each.refusal)
    if each.jobs_parked:
        return StateLabel("needs attention", "bad", "jobs are parked after failures")
    if not each.is_done:
        return StateLabel("compacting", "busy")
    if each.too_large:
        return StateLabel(
            "too large", "warn", "groups would have to be cut into parts, which the bucket does not allow"
        )
    return StateLabel("caught up", "good")


def partition_notices(too_large: int, parts: int) -> list[tuple[str, str]]:
    """Return notices (tone and text) about groups and partitions in a bucket that does not allow partitions."""
    found = []
    if parts:
        what = "1 published block is a part" if parts == 1 else f"{parts} published blocks are parts"
        found.append(
            (
                "bad",
                f"{what} of a group that was cut by series. Compactors and readers that do not know partitions delete "
                "or hide all but one of them as duplicates: do not start the other system's compactor on this bucket. "
                "They are merged into whole blocks as soon as their interval can be planned.",
            )
        )
    if too_large:
        what = "1 group is" if too_large == 1 else f"{too_large} groups are"
        found.append(
            (
                "warn",
                f"{what} not merged: each would have to be cut into parts by series, which this bucket does not allow. "
                "Raise 'Series per part' and 'Index bytes per part' (a merge then takes more memory), or set 'Readers "
                "know partitions' for a Cortex with partitioning compaction.",
            )
        )
    return found
