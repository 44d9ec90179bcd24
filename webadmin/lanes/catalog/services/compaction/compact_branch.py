"""Begin a compaction of a branch: seal it, write the sealed rows to the store as one run, and create the job.

Readers see no change, and nothing blocks. A crash leaves a sealed token, which the next compaction or commit includes,
and a row that ``end_compactions.end_abandoned`` ends.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import IntegrityError, transaction

from engine.core.errors import LithifyError
from engine.formats.ranges.layout import SplitRules
from engine.lanes.catalog.apply_plan import UNIT_BYTES
from engine.lanes.catalog.jobs import KIND, LayerFile
from engine.lanes.catalog.plan.branch import BaseVersion, Refusal, base_version_of
from engine.lanes.catalog.runs import Layer
from engine.schedule.model import JobState
from engine.schedule.priority import job_priority_ms
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.catalog.compaction_policies import path_limits, policy_of
from webadmin.lanes.catalog.errors import BranchBusy
from webadmin.lanes.catalog.lane_models import REASON_MAX, BranchWatch, Compaction
from webadmin.lanes.catalog.models import Branch, Build
from webadmin.lanes.catalog.places import catalog_store, metarange_of, prefix_of
from webadmin.lanes.catalog.services.compaction.builds import begin_build, end_build
from webadmin.lanes.catalog.services.compaction.end_compactions import close_compactions, end_parked, refused_words
from webadmin.lanes.catalog.services.publish import publish_compaction
from webadmin.lanes.catalog.services.records import seal_branch
from webadmin.lanes.catalog.services.staged_rows import base_of, basis_layer, metarange_of_commit
from webadmin.lanes.catalog.states import CompactionState, Why
from webadmin.schedule.models import Job
from webadmin.schedule.polls.fair_shares import intern_shares
from webadmin.schedule.queries import limits_now
from webadmin.schedule.services.operation import Operation, operation

log = logging.getLogger(__name__)

ORDERED_PRIORITY_MS = 0
"""Priority of a compaction requested by an operator: before all other jobs of its tenant."""
NOTHING_STAGED = "nothing is staged"
SCHEDULE_FULL = "the schedule is full"


def begin_compaction(branch: Branch, *, cause: str, context: ActionContext, is_ordered: bool = False) -> Compaction:
    """Begin a compaction; it ends at once if there is nothing to do. Raises BranchBusy if one is under way."""
    compaction, build = _claim(branch, cause, is_ordered)
    try:
        _gather(compaction, branch, build, context)
    except LithifyError as error:
        close_compactions([compaction], CompactionState.FAILED, because=f"{type(error).__name__}: {error}")
        raise
    compaction.refresh_from_db()
    return compaction


def _claim(branch: Branch, cause: str, is_ordered: bool) -> tuple[Compaction, Build]:
    """Record that the branch is being compacted, before anything is sealed or written."""
    end_parked(branch.pk)
    build = begin_build(branch.repository, Why.COMPACTION, branch_id=branch.pk)
    try:
        with transaction.atomic():
            compaction = Compaction.objects.create(
                repository=branch.repository,
                branch_id=branch.pk,
                branch_name=branch.name,
                cause=cause[:REASON_MAX],
                is_ordered=is_ordered,
                build_id=build.pk,
                begun_ms=build.begun_ms,
            )
            BranchWatch.objects.update_or_create(
                branch=branch, defaults={"begun_ms": build.begun_ms, "ordered_by": "", "ordered_why": ""}
            )
    except IntegrityError as error:
        end_build(build)
        raise BranchBusy(f"a compaction of {branch.name} is under way") from error
    return compaction, build


def _gather(compaction: Compaction, branch: Branch, build: Build, context: ActionContext) -> None:
    record = seal_branch(branch.pk, why=Why.COMPACTION)
    if record is None:
        close_compactions([compaction], CompactionState.ENDED, because=Refusal.GONE.value)
        return
    base_version = base_version_of(record)
    if not base_version.sealed:
        close_compactions([compaction], CompactionState.ENDED, because=NOTHING_STAGED)
        return
    compaction.base_version = {
        "head": base_version.head,
        "snapshot": base_version.snapshot,
        "sealed": list(base_version.sealed),
    }
    compaction.base = base_of(branch.repository, base_version)
    compaction.head_metarange = metarange_of_commit(branch.repository, base_version.head)
    compaction.token_count = len(base_version.sealed)
    with basis_layer(base_version) as layer:
        if layer is None:
            _publish_as_it_is(compaction, branch, base_version, build)
            return
        _put_run(compaction, branch, layer)
    _make_job(compaction, branch, context)


def _publish_as_it_is(compaction: Compaction, branch: Branch, base_version: BaseVersion, build: Build) -> None:
    """Drop tokens without rows: the base of the branch already is the state."""
    state = metarange_of(branch.repository, compaction.base)
    with transaction.atomic():
        compaction.save()
        moved = publish_compaction(base_version, build, state, equals_head=base_version.snapshot is None)
        if isinstance(moved, Refusal):
            close_compactions([compaction], CompactionState.LOST, because=refused_words(moved))
        else:
            figures: dict[str, Any] = {
                "metarange": state.id,
                "equals_head": base_version.snapshot is None,
                "bytes_written": 0,
            }
            close_compactions([compaction], CompactionState.PUBLISHED, **figures)


def _put_run(compaction: Compaction, branch: Branch, layer: Layer) -> None:
    """Write the run from which the node reads the rows."""
    info = layer.run.info
    key = f"{prefix_of(branch.repository)}runs/{compaction.pk}"
    compaction.run_key = key
    compaction.row_count = info.rows
    compaction.run = LayerFile(
        key=key, rows=info.rows, file_bytes=info.file_bytes, tail_bytes=info.tail_bytes, intervals=layer.intervals
    ).to_json()
    compaction.save()
    with catalog_store().open_writer(key) as writer:
        layer.run.copy_to(writer.write)


def _make_job(compaction: Compaction, branch: Branch, context: ActionContext) -> None:
    intern_shares([(KIND, branch.repository.tenant)])
    with operation() as run:
        is_open = Compaction.objects.filter(pk=compaction.pk, state=CompactionState.OPEN).exists()
        if not is_open:
            return  # this process has an expired heartbeat
        if not run.room():
            close_compactions([compaction], CompactionState.ENDED, because=SCHEDULE_FULL)
            return
        run.write("compact_branch", context, target=_target(branch), detail=_entry(compaction, branch))
        job = Job.objects.create(**_job_columns(compaction, branch, run))
        run.live_jobs += 1
        Compaction.objects.filter(pk=compaction.pk).update(job=job)
    log.info("compaction_begun branch=%s job=%s cause=%s", _target(branch), job.name, compaction.cause)


def _target(branch: Branch) -> str:
    return f"{branch.repository}/{branch.name}"


def _name(compaction: Compaction) -> str:
    return f"compact-{compaction.pk}-R{compaction.repository_id}"


def _entry(compaction: Compaction, branch: Branch) -> dict[str, object]:
    """Return the log entry of the job."""
    created = {
        "job": _name(compaction),
        "lane": KIND,
        "tenant": branch.repository.tenant,
        "shard": 0,
        "level": 0,
        "sources": list((compaction.base_version or {}).get("sealed", ())),
        "is_assigned": False,
    }
    return {"jobs": [_name(compaction)], "branch": _target(branch), "cause": compaction.cause, "created": [created]}


def _job_columns(compaction: Compaction, branch: Branch, run: Operation) -> dict[str, object]:
    now_ms = run.time.now_ms
    size = (compaction.run or {}).get("file_bytes", 0)
    limits = path_limits(policy_of(branch.repository))
    rules = SplitRules()
    return {
        "name": _name(compaction),
        "lane": KIND,
        "tenant": branch.repository.tenant,
        "shard": 0,
        "level": 0,
        "state": JobState.WAITING,
        "added_at_ms": now_ms,
        "priority_ms": ORDERED_PRIORITY_MS
        if compaction.is_ordered
        else job_priority_ms(ready_at_ms=now_ms, size_bytes=size),
        "created_command_index": run.index,
        "source_count": compaction.token_count,
        "source_bytes": size,
        "spec": {
            "repository": str(branch.repository),
            "branch": branch.name,
            "task_memory_bytes": limits_now(now_ms).task_memory_bytes,
            "here_rows": limits.rows,
            "here_bytes": limits.size,
            "unit_bytes": UNIT_BYTES,
            "bytes_min": rules.bytes_min,
            "bytes_max": rules.bytes_max,
            "every": rules.every,
            "borders_every": rules.borders_every,
        },
    }
