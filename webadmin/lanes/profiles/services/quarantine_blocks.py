"""Quarantine a bad block in its own parked job, with the details of its damage; and release it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.schedule.isolation import FailedRun
from engine.schedule.model import JobState, ParkedKind
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.schedule.errors import FilterEmpty
from webadmin.schedule.models import Job
from webadmin.schedule.operation_models import ACTOR_MAX, WHY_MAX
from webadmin.schedule.register import NAMES_MAX
from webadmin.schedule.services.operation import JOBS_PER_COMMAND, QUEUE_IS_FULL, Operation, OperationOutcome, operation
from webadmin.schedule.services.requeue_jobs import put_back


def quarantine(run: Operation, job: Job, block: Block, cause: Quarantine.Cause, bad: FailedRun, attempts: int) -> None:
    """Quarantine a job's only block, in an operation that has written its entry. The job is parked or waiting."""
    run.live_jobs -= Job.objects.filter(id=job.id, state=JobState.WAITING).count()
    Job.objects.filter(id=job.id, state__in=[JobState.WAITING, JobState.PARKED]).update(
        state=JobState.PARKED, parked_kind=ParkedKind.QUARANTINED, parked_reason=quarantine_reason(cause, bad)
    )
    Quarantine.objects.create(
        block=block,
        job=job,
        cause=cause,
        error_class=bad.error_class[:100],
        message=bad.message,
        object=(bad.object or block.object_key)[:1024],
        section=bad.section[:100],
        offset=bad.offset,
        build=bad.build,
        attempts=attempts,
        at_ms=run.time.now_ms,
        command_index=run.index,
    )


def quarantine_reason(cause: Quarantine.Cause, bad: FailedRun) -> str:
    """Return the reason of parking the job of a quarantined block, in words."""
    return f"quarantined as {cause.value}: {bad.error_class}: {bad.message}"[:500]


def release(
    blocks: Sequence[str] = (), *, everything: bool = False, context: ActionContext, newer_build_only: bool = False
) -> OperationOutcome:
    """Release quarantined blocks by id for another try, each in its own job; the outcome names the blocks.

    Earlier failures no longer count. With ``newer_build_only`` only builds newer than those that failed run them. The
    queue limit applies. Raises FilterEmpty.
    """
    if not blocks and not everything:
        raise FilterEmpty("name blocks, or say that all are meant")
    if len(blocks) > NAMES_MAX:
        raise FilterEmpty(f"{len(blocks)} blocks: at most {NAMES_MAX} at once")
    held = Quarantine.objects.filter(released_at_ms=None).select_related("job", "block").order_by("id")
    held = held if everything else held.filter(block__ulid__in=blocks)
    if context.is_dry_run:
        found = [row.block.ulid for row in held]
        return OperationOutcome(
            action="release", is_dry_run=True, changed=tuple(found), left=_unknown(blocks, found, ())
        )
    with operation() as run:
        rows = list(held[: min(run.room(), JOBS_PER_COMMAND)])
        names = [row.block.ulid for row in rows]
        if rows:
            detail = {"blocks": names, "jobs": [row.job.name for row in rows], "newer_build_only": newer_build_only}
            target = names[0] if len(names) == 1 else f"{len(names)} blocks"
            run.write("release", context, target=target, detail=detail)
            Quarantine.objects.filter(id__in=[row.id for row in rows]).update(
                released_at_ms=run.time.now_ms, released_by=context.actor[:ACTOR_MAX], release_why=context.why[:WHY_MAX]
            )
            put_back(run, [row.job for row in rows], context=context, newer_build_only=newer_build_only)
    left_out = tuple(held.values_list("block__ulid", flat=True))
    return OperationOutcome(
        action="release",
        is_dry_run=False,
        changed=tuple(names),
        left=_unknown(blocks, names, left_out),
        command_indexes=(run.index,) if rows else (),
    )


def _unknown(blocks: Sequence[str], found: Sequence[str], no_room: Sequence[str]) -> tuple[tuple[str, str], ...]:
    left = [(ulid, QUEUE_IS_FULL) for ulid in no_room]
    left += [(ulid, "it is not in quarantine") for ulid in sorted(set(blocks) - set(found) - set(no_room))]
    return tuple(left)
