"""The lane of Prometheus blocks: a job merges one partition of a group of blocks of one interval.

A result stays invisible until the last partition of its group is done. Then one transaction makes the results live,
marks the sources superseded, and writes the changes for the bucket to the outbox.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from engine.core.errors import LithifyError
from engine.formats.prometheus.meta import BlockMeta, decode_meta
from engine.lanes.tsdb.buckets.block_objects import check_bounds
from engine.lanes.tsdb.buckets.sections import PartitionPlace, result_section
from engine.lanes.tsdb.jobs import KIND, BlockFile, TsdbMergeResult, TsdbMergeSpec, TsdbSource, WrittenBlock
from engine.lanes.tsdb.merge.merge_model import merged_meta
from engine.lanes.tsdb.plan.ownership import IntervalJob, Ownership, WorkerRing
from engine.lanes.tsdb.results import read_tsdb_result
from engine.protocol.messages import FailureReason
from engine.schedule.errors import ResultRefused
from engine.schedule.explain import Explanation
from engine.schedule.model import JobResult
from webadmin.adminkit.overview import LaneOverview
from webadmin.adminkit.sections import Section
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.tsdb.explain import explain_blocks
from webadmin.lanes.tsdb.job_sections import job_sections
from webadmin.lanes.tsdb.lane_report import blocks_kept, bucket_blockers, compactions_waiting
from webadmin.lanes.tsdb.models import Block, Bucket, BucketTenant, Group, Part
from webadmin.lanes.tsdb.overview import tenant_sections, tsdb_overview
from webadmin.lanes.tsdb.policies import allows_partitions, layout_of
from webadmin.lanes.tsdb.samples import tsdb_samples
from webadmin.lanes.tsdb.services.complete_groups import Completion, complete_parts, samples_owned, samples_written
from webadmin.lanes.tsdb.services.dissolve_groups import dissolve_groups
from webadmin.lanes.tsdb.services.quarantine_sources import of_place, release_since, sources_kept_out
from webadmin.lanes.tsdb.states import BlockState, GroupState
from webadmin.schedule.lanes import Accepted, Finished, Lane, LaneBlocker, Offer, Sample, SwapMoment, Waiting
from webadmin.schedule.models import Job
from webadmin.schedule.services.operation import Operation, OperationOutcome


class TsdbLane(Lane):
    """The lane whose groups own blocks of buckets; a group completes with its last partition."""

    name = KIND
    plans_ahead = True

    def specs(self, jobs: Sequence[Job], fence: int) -> dict[int, dict[str, Any]]:
        parts = _parts_of(jobs)
        sources = _sources_of(parts.values())
        return {
            job.id: _spec(job, parts[job.id], sources[parts[job.id].group_id], fence).to_json()
            for job in jobs
            if job.id in parts
        }

    def check(self, finished: Sequence[Finished]) -> list[Accepted | FailureReason]:
        parts = _parts_of([one.job for one in finished])
        sources = _sources_of(parts.values())
        groups = {part.group_id for part in parts.values() if part.group.partitions > 1}
        samples = _Samples(written=samples_written(groups), owned=samples_owned(groups))
        return [_checked(one, parts.get(one.job.id), sources, samples) for one in finished]

    def swap(self, swaps: Sequence[Completion], prepared: Any, moment: SwapMoment) -> None:
        complete_parts(swaps, moment)

    def kept(self, result: JobResult) -> dict[str, Any]:
        assert isinstance(result, TsdbMergeResult), "the lane's own"
        return {
            "blocks": result.to_log(),
            "samples_read": result.samples_read,
            "samples_dropped": result.samples_dropped,
            "series_read": result.series_read,
            "bytes_read": result.bytes_read,
        }

    def offered(self, jobs: Sequence[Job], offer: Offer) -> list[Job]:
        sizes = dict(Bucket.objects.values_list("name", "tenant_shard_size"))
        ring = WorkerRing.of(offer.workers)
        owners = {size: Ownership(ring=ring, lease_ms=offer.lease_ms, size=size) for size in {0, *sizes.values()}}
        return [
            job for job in jobs if owners[sizes.get(job.spec["bucket"], 0)].may_take(offer.worker, _asked(job, offer))
        ]

    def explain(self, name: str) -> list[Explanation]:
        return explain_blocks(name)

    def has_tenant(self, name: str) -> bool:
        return BucketTenant.objects.filter(name=name, is_deleted=False).exists()

    def waiting(self, tenant: str | None = None) -> list[Waiting]:
        return compactions_waiting(tenant)

    def kept_by_deletion(self, tenant: str) -> list[str]:
        return blocks_kept(tenant)

    def blockers(self) -> list[LaneBlocker]:
        return bucket_blockers()

    def jobs_of(self, place: str) -> Q:
        return of_place(place, "tsdb_part__group__tenant")

    def bad_sources(self, place: str, since_ms: int, accepted_ms: int) -> Counter[str]:
        return sources_kept_out(place, since_ms, accepted_ms)

    def release_bad_sources(self, place: str, since_ms: int, context: ActionContext) -> list[OperationOutcome]:
        return release_since(place, since_ms, context)

    def job_sections(self, job: Job, now_ms: int) -> list[Section]:
        return job_sections(job)

    def tenant_sections(self, tenant: str) -> list[Section]:
        return tenant_sections(tenant)

    def samples(self, samples_max: int) -> Iterable[tuple[str, list[Sample]]]:
        return tsdb_samples(samples_max)

    def overview(self, now_ms: int) -> LaneOverview:
        return tsdb_overview()

    def holding(self, jobs: Sequence[Job]) -> set[int]:
        open_parts = Part.objects.filter(job__in=jobs, group__state=GroupState.OPEN, is_done=False)
        return set(open_parts.values_list("job_id", flat=True))

    def give_back(self, run: Operation, jobs: Sequence[Job]) -> None:
        groups = Group.objects.filter(parts__job__in=jobs, state=GroupState.OPEN).distinct()
        dissolve_groups(run, list(groups), because="an operator gave its blocks back")


def _asked(job: Job, offer: Offer) -> IntervalJob:
    """Return a waiting job as block ownership sees it; a job that was leased before may go to any worker."""
    return IntervalJob(
        tenant=job.tenant,
        start_ms=job.spec["start_ms"],
        end_ms=job.spec["start_ms"] + job.spec["range_ms"],
        partition=job.spec["partition"],
        waited_ms=offer.lease_ms if job.token else offer.now_ms - job.added_at_ms,
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """A source of an open group: its row id and its description in the merge specification."""

    row_id: int
    source: TsdbSource


@dataclass(frozen=True, slots=True, kw_only=True)
class _Samples:
    """By group split into partitions: the number of samples in its results and in its sources."""

    written: dict[int, int]
    owned: dict[int, int]


def _parts_of(jobs: Iterable[Job]) -> dict[int, Part]:
    """Return the partitions of open groups, by the row ids of their jobs."""
    open_parts = Part.objects.filter(job__in=[job.id for job in jobs], group__state=GroupState.OPEN)
    related = open_parts.select_related("group__tenant__bucket", "group__tenant__folder")
    return {part.job_id: part for part in related.defer("group__tenant__folder__examined", "group__tenant__slots")}


def _sources_of(parts: Iterable[Part]) -> dict[int, dict[str, _Source]]:
    """Return the blocks that each group owns: by group, then by ULID."""
    found: dict[int, dict[str, _Source]] = {part.group_id: {} for part in parts}
    owned = Block.objects.filter(group__in=list(found), state=BlockState.OWNED)
    for row_id, group_id, ulid, level, files, meta in owned.values_list(
        "id", "group_id", "ulid", "level", "files", "meta"
    ):
        source = TsdbSource(id=ulid, level=level, files=tuple(BlockFile(**file) for file in files), meta=bytes(meta))
        found[group_id][ulid] = _Source(row_id, source)
    return found


def _spec(job: Job, part: Part, sources: dict[str, _Source], fence: int) -> TsdbMergeSpec:
    group = part.group
    bucket = group.tenant.bucket
    own = tuple(sources[ulid].source for ulid in job.spec["sources"] if ulid in sources)
    # In Cortex every block names its partition; elsewhere only a partition of a split group does.
    names_partition = bucket.layout == "cortex" or group.partitions > 1
    place = PartitionPlace(
        group_id=job.spec["group_id"],
        partition=part.partition,
        partitions=group.partitions,
        created_s=group.created_at_ms // 1000,
    )
    section = result_section(
        layout_of(bucket),
        [decode_meta(source.meta) for source in own],
        range_ms=group.range_ms if names_partition else 0,
        place=place if names_partition else None,
    )
    return TsdbMergeSpec(
        job=job.name,
        tenant=job.tenant,
        level=job.level,
        bucket_url=bucket.url,
        layout=bucket.layout,
        folder=group.tenant.folder.name,
        range_start_ms=group.start_ms,
        range_end_ms=group.end_ms,
        sources=own,
        partition=part.partition,
        partitions=group.partitions,
        winner=bucket.winner,
        thanos=section,
        fence=fence,
        task_memory_bytes=job.spec["task_memory_bytes"],
    )


def _checked(
    one: Finished, part: Part | None, sources: dict[int, dict[str, _Source]], samples: _Samples
) -> Accepted | FailureReason:
    """Verify one result and add its samples to those written by its group."""
    try:
        result = read_tsdb_result(one.result)
        if part is None:
            raise ResultRefused("its group is not open any more")
        if part.group.partitions > 1 and not allows_partitions(part.group.tenant.bucket):
            raise ResultRefused("it is one of several parts, which its bucket does not allow any more")
        spec = _spec(one.job, part, sources[part.group_id], one.job.token)
        meta = check_result(spec, one.job.spec["sources"], result)
        if meta is not None and part.group_id in samples.owned:
            written_samples, read = (
                samples.written[part.group_id] + meta.stats.num_samples,
                samples.owned[part.group_id],
            )
            if written_samples > read:
                raise ResultRefused(f"the parts of its group have {written_samples} samples, their sources {read}")
            samples.written[part.group_id] = written_samples
    except (LithifyError, KeyError) as error:
        return FailureReason(error_class=type(error).__name__, message=str(error))
    rows = frozenset(source.row_id for source in sources[part.group_id].values())
    return Accepted(
        result,
        Completion(
            job_id=one.job.id, part_id=part.id, group_id=part.group_id, sources=rows, block=result.block, meta=meta
        ),
    )


def check_result(spec: TsdbMergeSpec, planned: Sequence[str], result: TsdbMergeResult) -> BlockMeta | None:
    """Return the ``meta.json`` of a result, None if the result is empty. Raises ResultRefused.

    The result must have merged exactly the job's sources, all of them still owned by its group, and written at most one
    block: under the id of this job and token, with the interval, the sources' time range, and the level, sources and
    labels that their merge has.
    """
    if tuple(source.id for source in spec.sources) != tuple(planned):
        raise ResultRefused("some of its sources are not its group's any more")
    if result.sources != tuple(planned):
        raise ResultRefused(f"it merged {len(result.sources)} blocks that are not the job's {len(planned)} sources")
    return None if result.block is None else _check_block(spec, result.block)


def _check_block(spec: TsdbMergeSpec, block: WrittenBlock) -> BlockMeta:
    try:
        meta = decode_meta(block.meta)
        check_bounds(meta)  # interval and partition are within bounds and can be stored
        sources = [decode_meta(source.meta) for source in spec.sources]
    except LithifyError as error:
        raise ResultRefused(f"block {block.id!r}: {error}") from error
    merged = merged_meta(block.id, sources, is_part=spec.partitions > 1).compaction
    thanos = dict(meta.thanos or {})
    promised: dict[str, tuple[object, object]] = {
        "id": (block.id, spec.result_id()),
        "ulid": (meta.ulid, block.id),
        "level": (meta.compaction.level, merged.level),
        "descent": (set(meta.compaction.sources), set(merged.sources)),
        **{name: (thanos.get(name), value) for name, value in (spec.thanos or {}).items()},
    }
    for what, (found, expected) in promised.items():
        if found != expected:
            raise ResultRefused(f"block {block.id!r}: {what} is {found!r:.200}, expected {expected!r:.200}")
    first, end = min(source.min_time_ms for source in sources), max(source.max_time_ms for source in sources)
    if meta.min_time_ms < max(first, spec.range_start_ms) or meta.max_time_ms > min(end, spec.range_end_ms):
        raise ResultRefused(f"block {block.id!r}: its time is not that of the sources and the interval")
    if meta.stats.num_samples > sum(source.stats.num_samples for source in sources):
        raise ResultRefused(f"block {block.id!r}: it has more samples than its sources")
    return meta
