"""Record results of partitions and complete their groups, in the transaction that completes the jobs.

Uses a fixed number of statements for any number of jobs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import CharField, Count, F, Q, Sum, Value
from django.db.models.functions import Cast, Coalesce, Concat

from engine.formats.prometheus.meta import BlockMeta
from engine.lanes.tsdb.jobs import WrittenBlock
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.block_columns import block_columns
from webadmin.lanes.tsdb.models import Block, BucketTenant, Group, OutboxStep, Part
from webadmin.lanes.tsdb.policies import allows_partitions
from webadmin.lanes.tsdb.states import BlockState, GroupState, StepKind
from webadmin.schedule.errors import SourcesChanged
from webadmin.schedule.lanes import SwapMoment

MERGED_BY = "merged by group "


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The result of a partition; ``sources`` are the row ids of its group's blocks when the result was verified."""

    job_id: int
    part_id: int
    group_id: int
    sources: frozenset[int]
    block: WrittenBlock | None
    meta: BlockMeta | None


def samples_written(groups: Iterable[int]) -> dict[int, int]:
    """Return the number of samples in the finished partitions of each group."""
    wanted = set(groups)
    if not wanted:
        return {}
    done = Part.objects.filter(group__in=wanted, is_done=True).order_by().values_list("group_id")
    return dict.fromkeys(wanted, 0) | dict(done.annotate(samples=Coalesce(Sum("result__samples"), 0)))


def samples_owned(groups: Iterable[int]) -> dict[int, int]:
    """Return the number of samples in the sources that each group owns."""
    wanted = set(groups)
    if not wanted:
        return {}
    owned = Block.objects.filter(group__in=wanted, state=BlockState.OWNED).order_by().values_list("group_id")
    return dict.fromkeys(wanted, 0) | dict(owned.annotate(samples=Sum("samples")))


def complete_parts(completions: Sequence[Completion], moment: SwapMoment) -> None:
    """Record results; complete the groups that have all of theirs.

    Raises SourcesChanged if a group is no longer open, is split into partitions that its bucket does not allow, owns
    other blocks than at verification, already has a result of the partition, or has more samples in its results than in
    its sources: partitions that complete together are verified independently.
    """
    now_ms = dialect.clock_ms()
    groups = _open_groups(completions)
    _check_sources(completions)
    written = [one for one in completions if one.block is not None]
    made = Block.objects.bulk_create(_result_row(one, groups[one.group_id], now_ms) for one in written)
    results = {one.part_id: block for one, block in zip(written, made, strict=True)}
    ids = [one.part_id for one in completions]
    if Part.objects.filter(id__in=ids, is_done=False).update(is_done=True) != len(ids):
        raise SourcesChanged("a part of a group is done already")
    Part.objects.bulk_update([Part(id=part_id, result=block) for part_id, block in results.items()], ["result"])
    unfinished = Count("parts", filter=Q(parts__is_done=False))
    done = list(
        Group.objects.filter(id__in=list(groups)).annotate(unfinished=unfinished).filter(unfinished=0).order_by("id")
    )
    if done:
        _check_samples([group.id for group in done if group.partitions > 1])
        _finish(done, moment, now_ms)


def _open_groups(completions: Sequence[Completion]) -> dict[int, Group]:
    wanted = {one.group_id for one in completions}
    groups = Group.objects.filter(id__in=wanted, state=GroupState.OPEN).select_related("tenant__bucket").in_bulk()
    if wanted != groups.keys():
        raise SourcesChanged(f"groups {sorted(wanted - groups.keys())} are not open any more")
    if cut := [one.id for one in groups.values() if one.partitions > 1 and not allows_partitions(one.tenant.bucket)]:
        raise SourcesChanged(f"groups {sorted(cut)} are cut into parts, which their bucket does not allow any more")
    return groups


def _check_sources(completions: Sequence[Completion]) -> None:
    expected = {one.group_id: one.sources for one in completions}
    owned: defaultdict[int, set[int]] = defaultdict(set)
    rows = Block.objects.filter(group__in=list(expected), state=BlockState.OWNED)
    for block_id, group_id in rows.values_list("id", "group_id"):
        owned[group_id].add(block_id)
    if changed := [group_id for group_id, sources in expected.items() if owned[group_id] != sources]:
        raise SourcesChanged(f"groups {sorted(changed)} do not own the blocks any more that were merged")


def _check_samples(groups: Sequence[int]) -> None:
    written, owned = samples_written(groups), samples_owned(groups)
    if overcounted := [group for group in groups if written[group] > owned[group]]:
        raise SourcesChanged(f"the parts of groups {overcounted} have more samples than their sources")


def _result_row(one: Completion, group: Group, now_ms: int) -> Block:
    assert one.block is not None, "only of results that have a block"
    assert one.meta is not None, "read from the block"
    described = block_columns(one.meta, one.block.files, one.block.meta)
    return Block(
        tenant_id=group.tenant_id,
        ulid=one.block.id,
        state=BlockState.PENDING,
        group_key=group.group_key,
        made_by_id=one.job_id,
        found_at_ms=now_ms,
        uploaded_at_ms=now_ms,
        **described,
    )


def _finish(groups: Sequence[Group], moment: SwapMoment, now_ms: int) -> None:
    """Replace sources by results and add the outbox steps: first those that publish results."""
    ids = [group.id for group in groups]
    Group.objects.filter(id__in=ids).update(state=GroupState.DONE, finished_at_ms=now_ms)
    results = list(Block.objects.filter(part__group__in=ids).order_by("part__group_id", "part__partition"))
    sources = list(Block.objects.filter(group__in=ids, state=BlockState.OWNED).order_by("id").defer("meta", "files"))
    names = {group.id: f"{MERGED_BY}{group.id}" for group in groups}
    reason = Concat(Value(MERGED_BY), Cast("group_id", CharField()))
    Block.objects.filter(group__in=ids, state=BlockState.OWNED).update(state=BlockState.SUPERSEDED, reason=reason)
    Block.objects.filter(id__in=[block.id for block in results]).update(state=BlockState.LIVE)
    steps = [(block, StepKind.WRITE_META, "") for block in results]
    steps += [(block, StepKind.MARK_DELETION, names[block.group_id or 0]) for block in sources]
    OutboxStep.objects.bulk_create(
        OutboxStep(tenant_id=block.tenant_id, block=block, kind=kind, detail=detail, created_at_ms=now_ms)
        for block, kind, detail in steps
    )
    tenants = {group.tenant_id for group in groups}
    BucketTenant.objects.filter(id__in=tenants).update(plan_at_ms=0, index_wanted=F("index_wanted") + 1)
