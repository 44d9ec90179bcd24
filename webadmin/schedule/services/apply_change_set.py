"""Applies a change set under the head of the log: checks again what it rests on, writes it and its entry, commits.

1. Every change is a conditional update whose row count is read. If one finds its rows changed, nothing is applied.
2. The index of the entry is the fencing token of every job that it assigns.
3. Applying a change set twice is harmless: the second time its conditions do not hold.
4. The blocks of new jobs, most of the rows, are taken before the head, which is then held for so much less; nothing is
   committed without it. Whoever else moves waiting blocks holds the head while it waits for their rows. So a poll that
   has taken some waits for a short time only, gives way, and takes the head first when it tries again.
5. The head is let go before the disk has what was committed. Later commands are behind it on the disk, and who asked is
   told when the disk has it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from django.db import DatabaseError, IntegrityError, transaction

from engine.lanes.profiles.plan.model import PlannedJob
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
    ask_ids,
    ask_update,
    insert_rows,
    is_contention,
    together,
    update_rows,
)
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.command_log import CommandTime, move_head, take_head_for_entry, write_command
from webadmin.schedule.errors import SourcesChanged, StaleSnapshot
from webadmin.schedule.fair_shares import charge_shares, intern_shares, settle_awake
from webadmin.schedule.lanes import SwapMoment, lane_of
from webadmin.schedule.level_policies import LevelPolicies
from webadmin.schedule.level_queues import QueueChanges, ask_queues, settle_queues
from webadmin.schedule.models import Attempt, Command, Job, LevelQueue, Limits, Worker
from webadmin.schedule.planning_view import QueueFront, ReadyQueues

TOLD_COLUMNS = ("id", "name", "lane", "tenant", "shard", "level", "spec")
"""What lanes tell the workers of a job from."""
WAIT_MS = 500
"""Half of what PostgreSQL lets pass before it looks for transactions that wait in a circle, and ends one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyContext:
    """What applying needs beside the change set: who asked, limits and policies, the swaps by job name, and what they
    refer to, by lane; ``ready`` is which queues the poll has noticed, ``fronts`` what it read of those that it plans
    from, ``nobodys_count`` how many jobs hold no place on the schedule, ``lane_places`` how many jobs the lanes that
    have a limit may have on it. Who tries again ``takes_head_first``."""

    worker: Worker
    limits: Limits
    policies: LevelPolicies
    swaps: Mapping[str, Any]
    prepared: Mapping[str, Any]
    ready: ReadyQueues = field(default_factory=ReadyQueues)
    fronts: Sequence[QueueFront] = ()
    lane_places: Mapping[str, int] = field(default_factory=dict)
    nobodys_count: int = 0
    takes_head_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedCommand:
    """The entry that was written: its index is the token of the jobs in ``assigned`` (row ids, in order). Those in
    ``created`` were planned by it: what their workers need to know. Of an ``is_early`` one nobody may be told before
    ``wait_for_disk``."""

    index: int
    time: CommandTime
    assigned: tuple[int, ...]
    is_early: bool
    created: Mapping[int, Job] = field(default_factory=dict)


def apply_change_set(change_set: ChangeSet, context: ApplyContext) -> AppliedCommand:
    """Apply all of a change set or nothing. Raises StaleSnapshot if what it rests on has changed."""
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
    """One run of ``apply_change_set``; lives inside its transaction."""

    def __init__(self, change_set: ChangeSet, context: ApplyContext) -> None:
        self.change_set = change_set
        self.context = context
        self.queue_changes = QueueChanges()
        self.ended: list[tuple[JobView, AttemptOutcome, FailureReason | None]] = []
        self.entry = change_set.to_json()  # while others hold the head
        self.created: dict[int, Job] = {}
        self._taken_count = 0
        self._asked_blocks: Callable[[], int] = lambda: 0
        self._asked_queues: Callable[[], list[LevelQueue]] | None = None
        self.job_ids = self._reserve_jobs(len(change_set.created))
        before, then = (None, self._take_blocks) if context.takes_head_first else (self._take_blocks, None)
        ended = (*change_set.completed, *change_set.returned)
        self.is_early = all(lane_of(one.job.lane).ends_early for one in ended)
        also = (then, self._ask_under_head)
        self.head, self.time, self.index = take_head_for_entry(before=before, also=also, commits_early=self.is_early)
        if self._asked_blocks() != self._taken_count:
            raise StaleSnapshot("blocks of a planned job are gone from their queue")
        self.live_jobs = self._checked_live_jobs()
        self.lease_expires_ms = self.time.now_ms + context.limits.lease_seconds * 1000

    def run(self) -> AppliedCommand:
        changes = self.change_set
        self._complete(changes.completed)
        self._return(changes.returned)
        self._assign(changes.assigned)
        assigned = (*(assignment.job.id for assignment in changes.assigned), *self.job_ids)
        with together():
            write_command(
                kind=Command.Kind.UPDATE_PLAN,
                actor=f"worker:{self.context.worker.name}",
                time=self.time,
                change_set=self.entry,
                index=self.index,
            )
            self._create(changes.created)
            self._close_attempts()
            self._open_attempts(assigned)
            turned = self._settle_queues()
            charge_shares(changes.tenants, changes.lanes)
            intern_shares(self.context.ready.noticed.values(), known=changes.tenants)
            settle_awake(turned)
            move_head(self.index, self.time, live_jobs=self.live_jobs)
        return AppliedCommand(
            index=self.index, time=self.time, assigned=assigned, is_early=self.is_early, created=self.created
        )

    def _settle_queues(self) -> set[tuple[str, str]]:
        """Bring the sums of the queues up to date; return the tenants whose queues were noticed or ceased to be."""
        ready = self.context.ready
        taken = {block.id for creation in self.change_set.created for block in creation.plan.blocks}
        return settle_queues(
            self.queue_changes,
            self.context.policies,
            served_at_ms=self.time.now_ms,
            noticed=ready.noticed.keys(),
            fronts={front.queue.id: front.without(taken) for front in self.context.fronts},
            held=self._asked_queues,
        )

    def _checked_live_jobs(self) -> int:
        """Return how many jobs there will be on the schedule; others may have filled it since it was read."""
        changes, places = self.change_set, self.context.lane_places
        gone = [done.job.lane for done in changes.completed]
        gone += [returned.job.lane for returned in changes.returned if returned.parked_reason]
        came = [creation.plan.lane for creation in changes.created]
        growing = {lane: grown for lane in places if (grown := came.count(lane) - gone.count(lane)) > 0}
        for lane, grown in growing.items():
            if Job.objects.filter(state__in=LIVE_STATES, lane=lane).count() + grown > places[lane]:
                raise StaleSnapshot(f"others have filled the lane {lane} meanwhile")
        live = self.head.live_job_count + len(came) - len(gone)
        if came and 0 < self.context.limits.queue_max < live - self.context.nobodys_count > self._places_taken():
            raise StaleSnapshot("others have filled the schedule meanwhile")
        return live

    def _places_taken(self) -> int:
        return self.head.live_job_count - self.context.nobodys_count

    def _change(
        self,
        jobs: Sequence[JobView],
        columns: tuple[str, ...],
        values: Iterable[tuple[object, ...]],
        *,
        is_over: bool = False,
        to: Mapping[str, object],
    ) -> None:
        """Change jobs that are still as they were when the change set was prepared: each to its own ``values``, all of
        them to ``to``.

        ``is_over`` says that this rests on the end of their leases: a renewal, which needs no head, may have moved it.
        """
        self._ask_change(jobs, columns, values, is_over=is_over, to=to)()

    @staticmethod
    def _ask_change(
        jobs: Sequence[JobView],
        columns: tuple[str, ...],
        values: Iterable[tuple[object, ...]],
        *,
        is_over: bool = False,
        to: Mapping[str, object],
    ) -> Callable[[], None]:
        """Ask for such a change; the answer raises StaleSnapshot unless it found all of them."""
        keys = ("id", "state", "token", "failures", *(("lease_expires_ms",) if is_over else ()))
        rows = [
            (job.id, job.state.value, job.token, job.failures, *((job.lease_expires_ms,) if is_over else ()), *own)
            for job, own in zip(jobs, values, strict=True)
        ]
        changed = ask_update(Job, keys, columns, rows, to=to)

        def check() -> None:
            if changed() != len(rows):
                raise StaleSnapshot(f"one of the jobs {', '.join(job.name for job in jobs)} has changed")

        return check

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
        self.ended += [(job, AttemptOutcome.COMPLETED, None) for job in jobs]
        results = [(_result_row(completion),) for completion in completed]
        moment = SwapMoment(
            command_index=self.index,
            command_time_ms=self.time.now_ms,
            eligible_at_ms=self.time.now_ms + self.context.limits.cleanup_delay_seconds * 1000,
            queue_changes=self.queue_changes,
        )
        names = tuple(dict.fromkeys(job.lane for job in jobs))
        with together() if all(lane_of(lane).swaps_unasked for lane in names) else nullcontext():
            check = self._ask_change(jobs, ("result",), results, to=done)
            for lane in names:
                swaps = [self.context.swaps[job.name] for job in jobs if job.lane == lane]
                lane_of(lane).swap(swaps, self.context.prepared.get(lane), moment)
            self._asked_queues = ask_queues({*self.queue_changes.blocks, *self.context.ready.noticed})
        check()

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

    def _reserve_jobs(self, count: int) -> list[int]:
        """Return the row ids that the planned jobs will have. From here on nothing is waited for long, unless the head
        is taken first."""
        if not count:
            return []
        with together():  # with the beginning of the transaction
            return ask_ids(Job, count, wait_ms=0 if self.context.takes_head_first else WAIT_MS)()

    def _ask_under_head(self) -> None:
        """Lock the queues as soon as the head is ours."""
        if not self.change_set.completed:  # whose results come into queues that are not known yet
            self._asked_queues = ask_queues({*self.queue_changes.blocks, *self.context.ready.noticed})

    def _take_blocks(self) -> None:
        """Give the planned jobs their blocks; how many there were is looked at later."""
        created = self.change_set.created
        if not created:
            return
        parts = [(id, part) for id, made in zip(self.job_ids, created, strict=True) for part in made.plan.taken()]
        # In one order, so that two polls with the same blocks never wait for each other in a circle.
        taken = sorted((block.id, part.queue_id, job_id) for job_id, part in parts for block in part.blocks)
        owned, queued = {"state": BlockState.OWNED.value, "queue_id": None}, {"state": BlockState.QUEUED.value}
        for _, part in parts:
            size = sum(block.size_bytes for block in part.blocks)
            self.queue_changes.add(part.queue_id, -len(part.blocks), -size)
        self._asked_blocks = ask_update(Block, ("id", "queue_id"), ("owner_job_id",), taken, to=owned, where=queued)
        self._taken_count = len(taken)

    def _create(self, created: Sequence[CreateJob]) -> None:
        """Insert the planned jobs, whose blocks are theirs already."""
        rows = []
        for job_id, creation in zip(self.job_ids, created, strict=True):
            spec = self._spec(creation.plan)
            rows.append({"id": job_id} | self._job_row(creation) | {"spec": json.dumps(spec)})
            told = [spec if column == "spec" else rows[-1][column] for column in TOLD_COLUMNS]
            self.created[job_id] = as_instance(Job, TOLD_COLUMNS, told)
        insert_rows(Job, tuple(rows[0]) if rows else (), [tuple(row.values()) for row in rows])

    def _spec(self, plan: PlannedJob) -> dict[str, object]:
        """Return what is kept of what a job is to do."""
        moved = plan.source_shards()
        spec = {
            "sources": [block.ulid for block in plan.blocks],
            "task_memory_bytes": self.context.limits.task_memory_bytes,
            "result_bytes_max": self.context.policies.of(plan.lane, plan.tenant, plan.level).result_bytes_max,
        }
        return spec | ({"source_shards": moved} if moved else {})

    def _job_row(self, creation: CreateJob) -> dict[str, object]:
        """Return the columns of the job's row but its id and its spec, always in the same order."""
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
            "source_count": len(plan.blocks),
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
    """Return what a finished job keeps of its result, as JSON."""
    return json.dumps(lane_of(completion.job.lane).kept(completion.result))


def _priority_ms(job: JobView, failures: int) -> int:
    """Return a job's priority after its failures have changed; since when it is ready does not change."""
    before = job_priority_ms(ready_at_ms=0, size_bytes=job.size_bytes, failures=job.failures)
    return job.priority_ms - before + job_priority_ms(ready_at_ms=0, size_bytes=job.size_bytes, failures=failures)
