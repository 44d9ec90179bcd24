"""Apply a change set under the head of the log: check its assumptions again, write it and its entry, commit.

1. Every change is a conditional update whose row count is read. If one finds its rows changed, nothing is applied.
2. The index of the entry is the fencing token of every job that it assigns.
3. Applying a change set twice is harmless: the second time its conditions do not hold.
4. The sources of new jobs, most of the rows, are written before the head is locked, which shortens the lock; nothing
   is committed without the head. Other commands hold the head while they wait for the rows of sources, so a poll that
   has locked some waits for a short time only, gives up, and locks the head first when it retries (decision 0027).
5. The head is released before the commit is durable. Later commits are behind it in the database's log, and the worker
   is answered when it is durable (decision 0029).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import DatabaseError, IntegrityError, transaction

from engine.protocol.messages import FailureReason
from engine.protocol.wire import reason_to_wire
from engine.schedule.model import (
    LIVE_STATES,
    AssignJob,
    AttemptOutcome,
    ChangeSet,
    CompleteJob,
    CreateJob,
    JobState,
    JobView,
    ReturnJob,
)
from engine.schedule.priority import job_priority_ms
from webadmin.base.database.dialect import (
    as_instance,
    insert_rows,
    is_contention,
    pipeline,
    reserve_ids,
    update_rows,
)
from webadmin.schedule.command_log import CommandTime, move_head, take_head_for_entry, write_command
from webadmin.schedule.errors import SourcesChanged, StaleSnapshot
from webadmin.schedule.lanes import LanePlans, LaneWrite, SwapMoment, lane_of
from webadmin.schedule.models import Attempt, Command, Job, Limits, Worker
from webadmin.schedule.polls.fair_shares import charge_shares

SPEC_COLUMNS = ("id", "name", "lane", "tenant", "shard", "level", "spec")
"""Columns from which lanes build the specification for a worker."""
WAIT_MS = 500
"""How long a poll that has locked sources waits for a lock: half of PostgreSQL's deadlock timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyContext:
    """The data needed to apply a change set.

    ``plans`` are, by lane, the sources of the planned jobs; ``swaps`` the accepted results by job name, ``prepared``
    what they refer to by lane; ``unclaimable_job_count`` jobs do not count towards the queue limit; ``lane_places`` are
    the queue limits of lanes that have one. A retry ``takes_head_first``.
    """

    worker: Worker
    limits: Limits
    swaps: Mapping[str, Any]
    prepared: Mapping[str, Any]
    plans: Mapping[str, LanePlans] = field(default_factory=dict)
    lane_places: Mapping[str, int] = field(default_factory=dict)
    unclaimable_job_count: int = 0
    takes_head_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedCommand:
    """The entry that was written: its index is the token of the jobs in ``assigned`` (row ids, in sequence).

    ``created`` are the jobs that it planned. If ``is_early``, the worker must not be answered before the commit is
    durable (``wait_for_disk``).
    """

    index: int
    time: CommandTime
    assigned: tuple[int, ...]
    is_early: bool
    created: Mapping[int, Job] = field(default_factory=dict)


def apply_change_set(change_set: ChangeSet, context: ApplyContext) -> AppliedCommand:
    """Apply all of a change set or nothing. Raises StaleSnapshot if its assumptions have changed."""
    try:
        with transaction.atomic(durable=True):
            return _Application(change_set, context).run()
    except (IntegrityError, SourcesChanged) as error:
        raise StaleSnapshot(str(error)) from error
    except DatabaseError as error:
        if is_contention(error):
            raise StaleSnapshot(str(error)) from error
        raise


class _Application:
    """One run of ``apply_change_set``, inside its transaction."""

    def __init__(self, change_set: ChangeSet, context: ApplyContext) -> None:
        self.change_set = change_set
        self.context = context
        self.ended: list[tuple[JobView, AttemptOutcome, FailureReason | None]] = []
        lanes = {done.job.lane for done in change_set.completed} | {new.plan.lane for new in change_set.created}
        self.writes: dict[str, LaneWrite] = {
            name: lane_of(name).open_write(context.plans.get(name), limits=context.limits)
            for name in sorted(lanes | context.plans.keys())
        }

    def run(self) -> AppliedCommand:
        changes = self.change_set
        entry = changes.to_json()
        job_ids = self._reserve_jobs()
        if not self.context.takes_head_first:
            self._take_sources(job_ids)
        lanes = {done.job.lane for done in changes.completed} | {one.job.lane for one in changes.returned}
        is_early = all(lane_of(lane).ends_early for lane in lanes)
        self.head, self.time, self.index = take_head_for_entry(commits_early=is_early)
        if self.context.takes_head_first:
            self._take_sources(job_ids)
        for write in self.writes.values():
            write.check_sources()
        live_jobs = self._checked_live_jobs()
        self.lease_expires_ms = self.time.now_ms + self.context.limits.lease_seconds * 1000
        self._complete(changes.completed)
        self._return(changes.returned)
        self._assign(changes.assigned)
        assigned = (*(assignment.job.id for assignment in changes.assigned), *job_ids)
        with pipeline():
            write_command(
                kind=Command.Kind.UPDATE_PLAN,
                actor=f"worker:{self.context.worker.name}",
                time=self.time,
                change_set=entry,
                index=self.index,
            )
            created = self._create(job_ids)
            self._close_attempts()
            self._open_attempts(assigned)
            charge_shares(changes.tenants, changes.lanes)
            for write in self.writes.values():
                write.finish(self.time.now_ms)
            move_head(self.index, self.time, live_jobs=live_jobs)
        return AppliedCommand(index=self.index, time=self.time, assigned=assigned, is_early=is_early, created=created)

    def _reserve_jobs(self) -> list[int]:
        """Return the reserved row ids of the planned jobs; limit the wait for locks."""
        if not self.change_set.created:
            return []
        return reserve_ids(Job, len(self.change_set.created), wait_ms=0 if self.context.takes_head_first else WAIT_MS)

    def _take_sources(self, job_ids: Sequence[int]) -> None:
        for lane, write in self.writes.items():
            pairs = zip(job_ids, self.change_set.created, strict=True)
            planned = [(job_id, new.plan) for job_id, new in pairs if new.plan.lane == lane]
            if planned:
                write.take_sources(planned)

    def _checked_live_jobs(self) -> int:
        """Return the number of jobs on the schedule after the change.

        Raises StaleSnapshot if the queue was filled since.
        """
        changes, places = self.change_set, self.context.lane_places
        gone = [done.job.lane for done in changes.completed]
        gone += [returned.job.lane for returned in changes.returned if returned.parked_reason]
        came = [creation.plan.lane for creation in changes.created]
        growing = {lane: grown for lane in places if (grown := came.count(lane) - gone.count(lane)) > 0}
        for lane, grown in growing.items():
            if Job.objects.filter(state__in=LIVE_STATES, lane=lane).count() + grown > places[lane]:
                raise StaleSnapshot(f"others have filled the lane {lane} meanwhile")
        before, unclaimable = self.head.live_job_count, self.context.unclaimable_job_count
        live = before + len(came) - len(gone)
        if came and 0 < self.context.limits.queue_max < live - unclaimable > before - unclaimable:
            raise StaleSnapshot("others have filled the schedule meanwhile")
        return live

    def _change(
        self,
        jobs: Sequence[JobView],
        columns: tuple[str, ...],
        values: Iterable[tuple[object, ...]],
        *,
        is_over: bool = False,
        to: Mapping[str, object],
    ) -> None:
        """Change jobs that are unchanged since the change set was prepared: each to its ``values``, all to ``to``.

        ``is_over``: the change assumes that their leases have expired; a renewal, which needs no head, may have
        extended one.
        """
        keys = ("id", "state", "token", "failures", *(("lease_expires_ms",) if is_over else ()))
        rows = [
            (job.id, job.state.value, job.token, job.failures, *((job.lease_expires_ms,) if is_over else ()), *own)
            for job, own in zip(jobs, values, strict=True)
        ]
        if update_rows(Job, keys, columns, rows, to=to) != len(rows):
            raise StaleSnapshot(f"one of the jobs {', '.join(job.name for job in jobs)} has changed")

    def _complete(self, completed: Sequence[CompleteJob]) -> None:
        if not completed:
            return
        jobs = [completion.job for completion in completed]
        done = {
            "state": JobState.DONE.value,
            "lease_expires_ms": None,
            "finished_at_ms": self.time.now_ms,
            "finished_command_index": self.index,
        }
        self._change(jobs, ("result",), [(_result_row(completion),) for completion in completed], to=done)
        moment = SwapMoment(
            command_index=self.index,
            command_time_ms=self.time.now_ms,
            eligible_at_ms=self.time.now_ms + self.context.limits.cleanup_delay_seconds * 1000,
        )
        for lane in dict.fromkeys(job.lane for job in jobs):
            swaps = [self.context.swaps[job.name] for job in jobs if job.lane == lane]
            self.writes[lane].swap(swaps, self.context.prepared.get(lane), moment)
        self.ended += [(job, AttemptOutcome.COMPLETED, None) for job in jobs]

    def _return(self, all_returned: Sequence[ReturnJob]) -> None:
        for is_over in (False, True):
            group = [one for one in all_returned if (one.outcome is AttemptOutcome.EXPIRED) is is_over]
            values = [
                (
                    JobState.PARKED.value if returned.parked_reason else JobState.WAITING.value,
                    returned.parked_reason[:500],
                    returned.failures,
                    _priority_ms(returned.job, returned.failures),
                )
                for returned in group
            ]
            columns = ("state", "parked_reason", "failures", "priority_ms")
            freed = {"lease_expires_ms": None, "progress": None}
            self._change([returned.job for returned in group], columns, values, is_over=is_over, to=freed)
        self.ended += [(returned.job, returned.outcome, returned.reason) for returned in all_returned]

    def _assign(self, all_assigned: Sequence[AssignJob]) -> None:
        leased = {
            "state": JobState.LEASED.value,
            "token": self.index,
            "worker_id": self.context.worker.id,
            "lease_expires_ms": self.lease_expires_ms,
            "assigned_at_ms": self.time.now_ms,
            "progress": None,
        }
        for is_over in (False, True):
            group = [one for one in all_assigned if (one.job.state is JobState.LEASED) is is_over]
            values = [(one.failures, _priority_ms(one.job, one.failures)) for one in group]
            self._change([one.job for one in group], ("failures", "priority_ms"), values, is_over=is_over, to=leased)
            if is_over:
                self.ended += [(one.job, AttemptOutcome.EXPIRED, None) for one in group]

    def _create(self, job_ids: Sequence[int]) -> dict[int, Job]:
        """Insert the planned jobs, whose sources were assigned before; return them by row id."""
        created: dict[int, Job] = {}
        rows = []
        for job_id, creation in zip(job_ids, self.change_set.created, strict=True):
            spec = self.writes[creation.plan.lane].job_spec(creation.plan)
            row = {"id": job_id} | self._job_row(creation) | {"spec": spec}
            created[job_id] = as_instance(Job, SPEC_COLUMNS, [row[column] for column in SPEC_COLUMNS])
            rows.append(row | {"spec": json.dumps(spec)})
        insert_rows(Job, tuple(rows[0]) if rows else (), [tuple(row.values()) for row in rows])
        return created

    def _job_row(self, creation: CreateJob) -> dict[str, object]:
        """Return the columns of the job's row but its id and its spec, always in the same sequence."""
        plan = creation.plan
        return {
            "name": plan.name,
            "lane": plan.lane,
            "tenant": plan.tenant,
            "shard": plan.shard,
            "level": plan.level,
            "state": JobState.LEASED.value,
            "token": self.index,
            "worker_id": self.context.worker.id,
            "lease_expires_ms": self.lease_expires_ms,
            "failures": 0,
            "parked_reason": "",
            "parked_kind": "",
            "added_at_ms": self.time.now_ms,
            "priority_ms": job_priority_ms(ready_at_ms=plan.ready_at_ms, size_bytes=plan.size_bytes()),
            "assigned_at_ms": self.time.now_ms,
            "created_command_index": self.index,
            "source_count": plan.source_count(),
            "source_bytes": plan.size_bytes(),
        }

    def _open_attempts(self, job_ids: Iterable[int]) -> None:
        worker, outcome = self.context.worker, AttemptOutcome.RUNNING.value
        rows = [(job_id, self.index, worker.id, self.time.now_ms, outcome, worker.build) for job_id in job_ids]
        insert_rows(Attempt, ("job_id", "token", "worker_id", "assigned_at_ms", "outcome", "build"), rows)

    def _close_attempts(self) -> None:
        rows = [
            (job.id, job.token, outcome.value, json.dumps(reason_to_wire(reason)) if reason else None)
            for job, outcome, reason in self.ended
        ]
        update_rows(Attempt, ("job_id", "token"), ("outcome", "reason"), rows, to={"ended_at_ms": self.time.now_ms})


def _result_row(completion: CompleteJob) -> str:
    """Return the stored part of a finished job's result, as JSON."""
    return json.dumps(lane_of(completion.job.lane).kept(completion.result))


def _priority_ms(job: JobView, failures: int) -> int:
    """Return a job's priority for a new number of failures; the time since when it is ready does not change."""
    before = job_priority_ms(ready_at_ms=0, size_bytes=job.size_bytes, failures=job.failures)
    return job.priority_ms - before + job_priority_ms(ready_at_ms=0, size_bytes=job.size_bytes, failures=failures)
