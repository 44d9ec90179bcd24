"""The lane of profile blocks: merges within a shard, level by level, as jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Max, QuerySet

from engine.core.errors import LithifyError
from engine.formats.profile_block.model import DATASET_PROFILES, BlockMeta
from engine.lanes.profiles.completion import CompletionFacts, check_result
from engine.lanes.profiles.jobs import KIND, ProfileMergeResult, ProfileMergeSpec, SourceObject
from engine.lanes.profiles.results import read_profile_result
from engine.protocol.messages import FailureReason
from engine.schedule.errors import ResultRefused
from engine.schedule.explain import Explanation
from engine.schedule.limits import Scope
from engine.schedule.model import JobResult
from webadmin.adminkit.overview import LaneOverview
from webadmin.adminkit.sections import Section
from webadmin.base.actions.action import ActionContext
from webadmin.base.database.dialect import among, execute_deferred, pipeline, request_rows
from webadmin.lanes.profiles.admin import block_page
from webadmin.lanes.profiles.admin.overview import profiles_overview
from webadmin.lanes.profiles.errors import BlockRefused
from webadmin.lanes.profiles.explain import explain_blocks, explain_letters
from webadmin.lanes.profiles.level_models import LevelPolicy, LevelQueue
from webadmin.lanes.profiles.masks import HIDING, JobMasks, job_masks
from webadmin.lanes.profiles.models import AcceptedId, Block
from webadmin.lanes.profiles.operator_queries import queued_blocks
from webadmin.lanes.profiles.planning.lane_write import ProfilesWrite
from webadmin.lanes.profiles.planning.log_flow import ProfileFlow
from webadmin.lanes.profiles.planning.poll_planning import READY_AT, ProfilePlans, read_plans
from webadmin.lanes.profiles.registration import BlockRegistration, check_registration
from webadmin.lanes.profiles.samples import profile_samples
from webadmin.lanes.profiles.services.insert_blocks import InternedNames, intern_names
from webadmin.lanes.profiles.services.replace_blocks import Replacement
from webadmin.lanes.profiles.services.return_blocks import return_blocks
from webadmin.lanes.profiles.single_blocks import release_since, single_blocks
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.lanes import Accepted, Finished, Lane, LanePlans, PlanRequest, QueuedSources, Sample
from webadmin.schedule.models import Job, Limits
from webadmin.schedule.operator_queries import command_now_ms
from webadmin.schedule.services.operation import Operation, OperationOutcome

# All blocks of the jobs: with a condition on the state PostgreSQL would read every owned block.
_OBJECTS = f"""
SELECT {HIDING}, state, owner_job_id, id, shard, ulid, object_key, size_bytes, metadata
FROM profiles_block WHERE {{owned}}
"""  # noqa: S608
_SOURCES = f"""
SELECT {HIDING}, b.state, b.id, b.owner_job_id, b.ulid, b.min_time_ms, b.max_time_ms,
       t.name, n.name, d.min_time_ms, d.max_time_ms
FROM profiles_block b
LEFT JOIN profiles_dataset d ON d.block_id = b.id AND d.format = %s
LEFT JOIN access_tenant t ON t.id = d.tenant_id
LEFT JOIN profiles_datasetname n ON n.id = d.name_id
WHERE {{owned}}
"""  # noqa: S608


class ProfilesLane(Lane):
    """Jobs own blocks of the index; completing a job replaces them atomically."""

    name = KIND
    ready_at_sql = READY_AT
    keeps_wall_time = False
    ends_early = True
    flow = ProfileFlow()

    def specs(self, jobs: Sequence[Job], fence: int) -> dict[int, dict[str, Any]]:
        by_id = {job.id: job for job in jobs}
        sources: dict[int, dict[str, SourceObject]] = {job_id: {} for job_id in by_id}
        owned, values = among(Block, "owner_job_id", by_id)
        held = execute_deferred(_OBJECTS.format(owned=owned), [fence, *values])()
        masks = job_masks(dict.fromkeys(by_id, fence), is_hiding=any(row[0] for row in held))
        for _, state, job_id, block_id, shard, ulid, key, size, metadata in held:
            if state != BlockState.OWNED:
                continue
            sources[job_id][ulid] = SourceObject(
                id=ulid,
                key=key,
                size=size,
                metadata=bytes(metadata),
                masks_applied=masks[job_id].applied.get(block_id, 0),
                shard=None if shard == by_id[job_id].shard else shard,
            )
        return {
            job.id: ProfileMergeSpec(
                job=job.name,
                tenant=job.tenant,
                shard=job.shard,
                level=job.level,
                sources=tuple(sources[job.id][ulid] for ulid in job.spec["sources"] if ulid in sources[job.id]),
                fence=fence,
                task_memory_bytes=job.spec["task_memory_bytes"],
                masks=masks[job.id].in_order(),
                is_rewrite=job.spec.get("is_rewrite", False),
                result_bytes_max=job.spec.get("result_bytes_max", 0),
            ).to_json()
            for job in jobs
        }

    def check(self, finished: Sequence[Finished]) -> list[Accepted | FailureReason]:
        results = [_parsed(one) for one in finished]
        fences = {one.job.id: one.job.token for one in finished}
        owned, values = among(Block, "owner_job_id", fences)
        with pipeline():
            pending_sources = execute_deferred(
                _SOURCES.format(owned=owned), [max(fences.values()), DATASET_PROFILES, *values]
            )
            pending_ids = _request_taken_ids(results)
        rows, taken = pending_sources(), pending_ids()
        sources = _sources_of(fences, rows)
        masks = job_masks(fences, is_hiding=any(row[0] for row in rows))
        checked = [
            result
            if isinstance(result, FailureReason)
            else _accept_result(one.job, result, sources[one.job.id], masks[one.job.id])
            for one, result in zip(finished, results, strict=True)
        ]
        for place, checked_result in enumerate(checked):
            if isinstance(checked_result, Accepted):
                ids = {(result.meta.shard, result.meta.id) for result in checked_result.swap.results}
                if known := ids & taken:
                    checked[place] = _refusal(ResultRefused(f"block id {min(known)[1]!r} was accepted before"))
                taken |= ids  # of two results with the same id in one request only the first is accepted
        return checked

    def prepare(self, swaps: Sequence[Replacement]) -> InternedNames:
        return intern_names([result for swap in swaps for result in swap.results], numbers_blocks=True)

    def read_plans(self, request: PlanRequest) -> ProfilePlans | None:
        return read_plans(request)

    def open_write(self, plans: LanePlans | None = None, *, limits: Limits | None = None) -> ProfilesWrite:
        if plans is None:
            return ProfilesWrite(self, limits=limits)
        assert isinstance(plans, ProfilePlans)
        return ProfilesWrite(self, policies=plans.policies, heads=plans.heads, noticed=plans.noticed, limits=limits)

    def has_waiting_sources(self) -> bool:
        return LevelQueue.objects.filter(block_count__gt=0).exists()

    def kept(self, result: JobResult) -> dict[str, Any]:
        assert isinstance(result, ProfileMergeResult), "the lane's own"
        return {
            "blocks": [{"id": block.id, "key": block.key, "size": block.size} for block in result.blocks],
            "rows_read": result.rows_read,
            "rows_dropped": result.rows_dropped,
            "bytes_read": result.bytes_read,
        }

    def bad_sources(self, place: str, since_ms: int, accepted_ms: int) -> Counter[str]:
        return single_blocks(since_ms, accepted_ms)

    def release_bad_sources(self, place: str, since_ms: int, context: ActionContext) -> list[OperationOutcome]:
        return release_since(since_ms, context)

    def queued(self, scope: Scope, now_ms: int) -> QueuedSources:
        return queued_blocks(scope, now_ms)

    def explain(self, name: str) -> list[Explanation]:
        return explain_blocks(name) + explain_letters(name)

    def job_sections(self, job: Job, now_ms: int) -> list[Section]:
        return block_page.blocks_of_job_tables(job.pk, job.source_count, now_ms)

    def tenant_sections(self, tenant: str) -> list[Section]:
        return [block_page.tenant_table(tenant, command_now_ms())]

    def samples(self, samples_max: int) -> Iterable[tuple[str, list[Sample]]]:
        return profile_samples()

    def queue_rows(self) -> QuerySet[LevelQueue]:
        return LevelQueue.objects.all()

    def job_bytes_max(self) -> int:
        return int(LevelPolicy.objects.aggregate(most=Max("bytes_max"))["most"] or 0)

    def overview(self, now_ms: int) -> LaneOverview:
        return profiles_overview(now_ms)

    def holding(self, jobs: Sequence[Job]) -> set[int]:
        owned = Block.objects.filter(owner_job__in=jobs, state=BlockState.OWNED)
        return set(owned.values_list("owner_job_id", flat=True))

    def give_back(self, run: Operation, jobs: Sequence[Job]) -> None:
        return_blocks(run, jobs)


@dataclass(slots=True, kw_only=True)
class _Sources:
    """The sources of a reported job in the index: row ids by id, the datasets of each row, their times."""

    rows: dict[str, int] = field(default_factory=dict)
    datasets: defaultdict[int, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    times: list[int] = field(default_factory=list)


def _parsed(one: Finished) -> ProfileMergeResult | FailureReason:
    """Return a result in its checked form, or the reason why it is invalid."""
    try:
        return read_profile_result(one.result)
    except LithifyError as error:
        return _refusal(error)


def _sources_of(jobs: Iterable[int], rows: Iterable[tuple[Any, ...]]) -> dict[int, _Sources]:
    """Return, by job, the live blocks that it owns."""
    sources = {job_id: _Sources() for job_id in jobs}
    for _, state, block_id, job_id, ulid, block_from, block_until, tenant, name, data_from, data_until in rows:
        if state != BlockState.OWNED:
            continue
        own = sources[job_id]
        own.rows[ulid] = block_id
        own.times += (block_from, block_until)
        if tenant is not None:
            own.datasets[block_id].add((tenant, name))
            own.times += (data_from, data_until)  # datasets of old writers may extend beyond their block's time
    return sources


def _accept_result(
    job: Job, result: ProfileMergeResult, sources: _Sources, masks: JobMasks
) -> Accepted | FailureReason:
    """Check a result against the index, except its ids against the ledger; return it or the reason of refusal."""
    try:
        facts = CompletionFacts(
            shard=job.shard,
            level=job.level,
            sources=tuple(ulid for ulid in job.spec["sources"] if ulid in sources.rows),
            datasets=frozenset().union(*sources.datasets.values()),
            min_time_ms=min(sources.times, default=0),
            max_time_ms=max(sources.times, default=0),
            is_rewrite=job.spec.get("is_rewrite", False),
            masks=masks.indexes,
            masked=frozenset(masks.masked),
        )
        registrations = _registrations(job, check_result(facts, result), result)
    except (LithifyError, KeyError) as error:
        return _refusal(error)
    tenants = {row: frozenset(tenant for tenant, _ in sources.datasets[row]) for row in sources.rows.values()}
    return Accepted(result, Replacement(job_id=job.id, sources=tenants, results=registrations))


def _registrations(job: Job, metas: Sequence[BlockMeta], result: ProfileMergeResult) -> list[BlockRegistration]:
    registrations = [
        BlockRegistration(
            meta=meta,
            metadata=block.metadata,
            object_key=block.key,
            size_bytes=block.size,
            crc32c=block.crc32c,
            # The merge applied the delete requests up to its assignment, and no later ones.
            masks_applied=job.token,
        )
        for meta, block in zip(metas, result.blocks, strict=True)
    ]
    for registration in registrations:
        try:
            check_registration(registration, remembered_from_ms=None)
        except BlockRefused as error:
            raise ResultRefused(str(error)) from error
    return registrations


def _refusal(error: Exception) -> FailureReason:
    return FailureReason(error_class=type(error).__name__, message=str(error))


def _request_taken_ids(results: Iterable[ProfileMergeResult | FailureReason]) -> Callable[[], set[tuple[int, str]]]:
    """Query which of the results' ids, with their shards, are in the ledger.

    The results are not checked yet; strings that cannot be ids are left out.
    """
    complete = [result for result in results if isinstance(result, ProfileMergeResult)]
    ids = {block.id for result in complete for block in result.blocks if block.id.isascii() and block.id.isalnum()}
    if not ids:
        return set
    wanted, values = among(AcceptedId, "ulid", ids)
    rows = request_rows(AcceptedId, ("shard", "ulid"), f"WHERE {wanted}", values)
    return lambda: set(rows())
