"""Dissolve groups: cancel their jobs and free their blocks, inside an operation with a log entry."""

from __future__ import annotations

from collections.abc import Sequence

from engine.schedule.model import HOLDING_STATES
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.models import REASON_MAX, Block, BucketTenant, Group
from webadmin.lanes.tsdb.states import BlockState, GroupState
from webadmin.schedule.models import Job
from webadmin.schedule.services.operation import Operation
from webadmin.schedule.services.return_job_blocks import end_jobs


def jobs_of(groups: Sequence[Group]) -> list[Job]:
    """Return the jobs of these groups that still own blocks."""
    held = [state.value for state in HOLDING_STATES]
    return list(Job.objects.filter(tsdb_part__group__in=groups, state__in=held).order_by("id"))


def dissolve_groups(run: Operation, groups: Sequence[Group], *, because: str) -> None:
    """Cancel the jobs of open groups in any state, and free the blocks.

    A worker that runs one finds its lease revoked at its next poll. Results of finished partitions are never published:
    they remain as uploads without ``meta.json`` until they are old enough to be deleted.
    """
    now_ms = dialect.clock_ms()
    end_jobs(run, jobs_of(groups), because=because)
    open_groups = Group.objects.filter(id__in=[group.id for group in groups], state=GroupState.OPEN)
    open_groups.update(state=GroupState.DISSOLVED, finished_at_ms=now_ms, ended_because=because[:REASON_MAX])
    Block.objects.filter(group__in=groups, state=BlockState.OWNED).update(state=BlockState.LIVE, group=None)
    Block.objects.filter(part__group__in=groups, state=BlockState.PENDING).update(
        state=BlockState.GONE, reason=f"its group was given up: {because}"[:REASON_MAX]
    )
    BucketTenant.objects.filter(id__in={group.tenant_id for group in groups}).update(plan_at_ms=0)
