"""The transaction of every operator's action: it locks the head, writes the log and the audit, and commits.

A service plans the action, and unless it is a dry run plans it again while it holds the head, so that the result is
based on current data. An action that changes nothing writes nothing: it is idempotent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from django.db import transaction
from django.db.models import QuerySet

from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.schedule.blockers import unclaimable_jobs
from webadmin.schedule.command_log import CommandTime, move_head, read_time, take_head, write_command
from webadmin.schedule.models import Command, Job, LogHead
from webadmin.schedule.operation_models import WHY_MAX
from webadmin.schedule.pauses import paused_scopes
from webadmin.schedule.queries import limits_now
from webadmin.schedule.register import JobFilter

JOBS_PER_COMMAND = 200
"""How many jobs one command changes, which bounds how long the head is locked."""
TARGET_MAX = 250


QUEUE_IS_FULL = "the queue is full: raise its limit, or wait"
"""Why an action leaves a job or block unchanged while the queue is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationOutcome:
    """The outcome of an action, or of its dry run: names of the changed jobs, and of those left, with the reason.

    ``notes`` are sentences about what it does not cover.
    """

    action: str
    is_dry_run: bool
    changed: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    command_indexes: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for API and commands."""
        return {
            "action": self.action,
            "dry_run": self.is_dry_run,
            "changed": list(self.changed),
            "left": [{"job": name, "reason": reason} for name, reason in self.left],
            "commands": list(self.command_indexes),
            "notes": list(self.notes),
        }


class FinishedWrite(Protocol):
    """The writes of a lane in an operation, beside jobs (``lanes.lane_write``)."""

    def finish(self, now_ms: int) -> None:
        """Update derived data at the end of the transaction."""


@dataclass(slots=True)
class Operation:
    """An action while it holds the head; ``index`` is its entry in the log once that is written."""

    time: CommandTime
    live_jobs: int
    index: int = 0
    writes: dict[str, FinishedWrite] = field(default_factory=dict)

    def write(self, action: str, context: ActionContext, *, target: str = "", detail: dict[str, Any]) -> int:
        """Write the log entry and the audit entry; call it before any change."""
        about = {"action": action, "why": context.why[:WHY_MAX]} | detail
        self.index = write_command(kind=Command.Kind.OPERATE, actor=context.actor, time=self.time, change_set=about)
        record_audit(
            actor=context.actor, action=action, target=target[:TARGET_MAX], detail=about | {"command": self.index}
        )
        return self.index

    def room(self) -> int:
        """Return how many more jobs the queue limit allows on the schedule."""
        return room_for(self.live_jobs, self.time)


@contextmanager
def operation() -> Iterator[Operation]:
    """Lock the head for an action; its writes are committed together, or not at all."""
    with transaction.atomic(durable=True):
        head, time = take_head()
        run = Operation(time=time, live_jobs=head.live_job_count)
        yield run
        if run.index:
            for write in run.writes.values():
                write.finish(run.time.now_ms)
            move_head(run.index, run.time, live_jobs=run.live_jobs)


def target_of(jobs: list[Job]) -> str:
    """Return the audit log's target for these jobs."""
    return jobs[0].name if len(jobs) == 1 else f"{len(jobs)} jobs"


Chosen = tuple[list[Job], list[tuple[str, str]]]
"""Jobs to change, and those to leave with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAction:
    """An action on many jobs. ``among`` are the jobs to which it can apply, described by ``their_state``.

    ``choose`` receives a batch and how many more jobs the queue limit allows, and returns which of them to change;
    ``change`` changes those inside an operation whose log entry is written.
    """

    action: str
    among: QuerySet[Job]
    their_state: str
    choose: Callable[[list[Job], int], Chosen]
    change: Callable[[Operation, list[Job]], None]
    detail: dict[str, Any] = field(default_factory=dict)


def change_jobs(orders: JobAction, wanted: JobFilter, context: ActionContext) -> OperationOutcome:
    """Run an action on all jobs that match, in batches of one command each. Raises FilterEmpty."""
    jobs = wanted.apply(orders.among).order_by("id")
    changed: list[str] = []
    left: list[tuple[str, str]] = []
    indexes: list[int] = []
    last_id = 0
    while True:
        if context.is_dry_run:
            batch = list(jobs.filter(id__gt=last_id)[:JOBS_PER_COMMAND])
            chosen, stay = orders.choose(batch, _room_now() - len(changed))
        else:
            with operation() as run:
                batch = list(jobs.filter(id__gt=last_id)[:JOBS_PER_COMMAND])
                chosen, stay = orders.choose(batch, run.room())
                if chosen:
                    detail = {"filter": wanted.to_json(), "jobs": [job.name for job in chosen]} | orders.detail
                    indexes.append(run.write(orders.action, context, target=target_of(chosen), detail=detail))
                    orders.change(run, chosen)
        changed += [job.name for job in chosen]
        left += stay
        if len(batch) < JOBS_PER_COMMAND:
            break
        last_id = batch[-1].id
    unknown = set(wanted.names) - set(changed) - {name for name, _ in left}
    left += [(name, f"no {orders.their_state} job of this name fits the filter") for name in sorted(unknown)]
    return OperationOutcome(
        action=orders.action,
        is_dry_run=context.is_dry_run,
        changed=tuple(changed),
        left=tuple(left),
        command_indexes=tuple(indexes),
    )


def all_of_them(jobs: list[Job], room: int) -> Chosen:
    """Choose every job: the action takes no room in the queue."""
    return jobs, []


def _room_now() -> int:
    return room_for(LogHead.objects.values_list("live_job_count", flat=True).get(), read_time())


def room_for(live_jobs: int, time: CommandTime) -> int:
    """Return how many more jobs the queue limit allows beside these. Jobs that no worker may take do not count."""
    queue_max = limits_now(time.now_ms).queue_max
    if not queue_max:
        return sys.maxsize
    if live_jobs < queue_max:
        return queue_max - live_jobs
    return max(0, queue_max - live_jobs + unclaimable_jobs(paused_scopes(time.now_ms), wall_ms=time.wall_ms).count())
