"""The scheduler, as scenario files speak to it: single procedures of the ``reference`` policy, and whole polls of both.

A request begins with the first command that needs one and ends with ``request``: what is reported in it is not assigned
to it, what is assigned or evicted is so for the rest of it. ``poll`` is a whole request by itself. Tokens are 1, the
worker is ``me``, unless a command says otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from engine.lanes.profiles.jobs import ProfileMergeResult
from engine.lanes.profiles.plan.consolidation import plan_queues
from engine.lanes.profiles.plan.model import BlockQueue, LevelPolicy, QueuedBlock
from engine.protocol.messages import FailureReason, JobUpdate, UpdateStatus
from engine.schedule.model import (
    ChangeSet,
    JobState,
    JobView,
    Report,
    ReturnJob,
    ScheduleLimits,
    ScheduleSnapshot,
)
from engine.schedule.prepare import prepare
from engine.schedule.priority import job_priority_ms
from engine.schedule.reports import settle_reports
from tests.reference_policy.job_queue import JobQueue
from tests.reference_policy.schedule import ReferenceSchedule, prepare_reference

ME = "me"
HOUR = 3_600_000
RESULT = ProfileMergeResult(sources=(), blocks=())


class ScheduleWorld:
    """Jobs, ready queues and the reports of one request."""

    def __init__(self) -> None:
        self.limits = ScheduleLimits(lease_ms=10_000, failures_max=3)
        self.is_reference = True
        self.jobs: dict[str, JobView] = {}
        self.queues: list[BlockQueue] = []
        self.reports: list[Report] = []
        self.schedule: ReferenceSchedule | None = None
        self.now_ms = 0

    def run(self, command: str) -> str:
        word, *words = command.split()
        options = dict(text.split("=") for text in words if "=" in text)
        outcome: str = getattr(self, f"_{word}")([text for text in words if "=" not in text], options)
        return outcome

    def _limits(self, words: list[str], options: dict[str, str]) -> str:
        self.limits = replace(
            self.limits,
            queue_max=int(options.get("queue", self.limits.queue_max)),
            failures_max=int(options.get("failures", self.limits.failures_max)),
        )
        self.is_reference = options.get("policy", "reference" if self.is_reference else "default") == "reference"
        return ""

    def _now(self, words: list[str], options: dict[str, str]) -> str:
        self.now_ms = int(words[0])
        return ""

    def _jobs(self, words: list[str], options: dict[str, str]) -> str:
        """``jobs waiting|leased NAME… level= token= expires= failures= worker= size= ready=``."""
        for name in words[1:]:
            job = JobView(
                id=len(self.jobs) + 1,
                name=name,
                lane="profiles",
                level=int(options.get("level", 0)),
                state=JobState(words[0]),
                token=int(options.get("token", 1)),
                worker=options.get("worker", ME) if words[0] == "leased" else "",
                lease_expires_ms=int(options.get("expires", 0)),
                failures=int(options.get("failures", 0)),
                size_bytes=int(options.get("size", 0)),
            )
            ready = job_priority_ms(
                ready_at_ms=int(options.get("ready", 0)), size_bytes=job.size_bytes, failures=job.failures
            )
            self.jobs[name] = replace(job, priority_ms=ready)
        return ""

    def _blocks(self, words: list[str], options: dict[str, str]) -> str:
        """``blocks TENANT/SHARD BLOCK… level= size=``: a queue that is one job's worth of ready blocks."""
        tenant, _, shard = words[0].partition("/")
        blocks = tuple(
            QueuedBlock(
                id=n, ulid=name, arrived_at_ms=self.now_ms, created_at_ms=0, size_bytes=int(options.get("size", 1))
            )
            for n, name in enumerate(words[1:], 1)
        )
        per_job = int(options.get("max", len(blocks)))
        queue = BlockQueue(
            id=len(self.queues) + 1,
            lane="profiles",
            tenant=tenant,
            shard=int(shard),
            level=int(options.get("level", 0)),
            policy=LevelPolicy(blocks_max=per_job, age_ms=HOUR, spread_ms=HOUR),
            blocks=blocks,
        )
        self.queues.append(queue)
        return ""

    def _request(self, words: list[str], options: dict[str, str]) -> str:
        self.reports, self.schedule = [], None
        return ""

    def _refresh(self, words: list[str], options: dict[str, str]) -> str:
        return self._report(UpdateStatus.IN_PROGRESS, words, options)

    def _success(self, words: list[str], options: dict[str, str]) -> str:
        return self._report(UpdateStatus.SUCCESS, words, options)

    def _released(self, words: list[str], options: dict[str, str]) -> str:
        return self._report(UpdateStatus.RELEASED, words, options)

    def _report(self, status: UpdateStatus, words: list[str], options: dict[str, str]) -> str:
        """Report on jobs; answer what counts."""
        for name in words:
            reason = FailureReason(error_class=options["reason"], message="") if "reason" in options else None
            update = JobUpdate(job=name, token="", status=status, reason=reason)
            result = RESULT if status is UpdateStatus.SUCCESS else None
            token = int(options.get("token", 1))
            self.reports.append(Report(update=update, token=token, result=result))
        renewed, completed, returned = settle_reports(self._snapshot(0, reports=self.reports[-len(words) :]))
        counted = [f"{r.job.name} renewed, token {r.job.token}" for r in renewed]
        counted += [f"{c.job.name} completed" for c in completed]
        counted += [f"{r.job.name} returned, F{r.failures}{', parked' * bool(r.parked_reason)}" for r in returned]
        return "; ".join(counted) or "ignored"

    def _assign(self, words: list[str], options: dict[str, str]) -> str:
        """``assign [COUNT]`` by the rules of the reference alone."""
        given = [self._opened().assign() for _ in range(int(words[0] if words else 1))]
        return "; ".join(f"{one.job.name} F{one.failures}" if one else "none" for one in given)

    def _evict(self, words: list[str], options: dict[str, str]) -> str:
        gone = [self._opened().evict() for _ in range(int(words[0] if words else 1))]
        return "; ".join(job.name if job else "none" for job in gone)

    def _add(self, words: list[str], options: dict[str, str]) -> str:
        return "; ".join("added" if self._opened().add() else "declined" for _ in words)

    def _opened(self) -> ReferenceSchedule:
        if self.schedule is None:
            touched = [report.update.job for report in self.reports]
            live = (job for job in self.jobs.values())
            self.schedule = ReferenceSchedule(live, limits=self.limits, now_ms=self.now_ms, touched=touched)
        return self.schedule

    def _order(self, words: list[str], options: dict[str, str]) -> str:
        """All jobs in the order of the reference's queue."""
        queue = JobQueue()
        for job in self.jobs.values():
            status = int(job.state is JobState.LEASED)
            queue.put(job.name, level=job.level, status=status, failures=job.failures, expires_ms=job.lease_expires_ms)
        return " ".join(queue)

    def _poll(self, words: list[str], options: dict[str, str]) -> str:
        """``poll capacity=``: a whole request under either policy; its changes are applied to the jobs."""
        capacity = int(options["capacity"])
        snapshot = self._snapshot(capacity, reports=self.reports)
        if self.is_reference:
            changes = prepare_reference(snapshot, self.queues)
        else:
            planned = plan_queues(self.queues, now_ms=self.now_ms, job_max=capacity)
            changes = prepare(replace(snapshot, queues=planned))
        self.reports = []
        self._apply(changes)
        return self._told(changes)

    def _told(self, changes: ChangeSet) -> str:
        parts = [f"renewed {r.job.name}" for r in changes.renewed]
        parts += [f"completed {c.job.name}" for c in changes.completed]
        parts += [_returned(returned) for returned in changes.returned]
        parts += [f"assigned {a.job.name} F{a.failures}" for a in changes.assigned]
        for created in changes.created:
            blocks = " ".join(block.ulid for block in created.plan.blocks)
            parts.append(f"created {blocks}{'' if self.is_reference else ' and assigned'}")
        return "; ".join(parts) or "nothing"

    def _snapshot(self, capacity: int, *, reports: list[Report]) -> ScheduleSnapshot:
        return ScheduleSnapshot(
            now_ms=self.now_ms,
            worker=ME,
            capacity=capacity,
            limits=self.limits,
            reports=tuple(reports),
            reported=dict(self.jobs),
            assignable=tuple(self.jobs.values()),
            live_job_count=len(self.jobs),
        )

    def _apply(self, changes: ChangeSet) -> None:
        for gone in (*changes.completed, *(r for r in changes.returned if r.parked_reason)):
            del self.jobs[gone.job.name]
        for returned in changes.returned:
            if returned.job.name in self.jobs:
                self.jobs[returned.job.name] = replace(
                    returned.job, state=JobState.WAITING, failures=returned.failures, worker=""
                )
        for renewal in changes.renewed:
            self._lease(renewal.job)
        for assigned in changes.assigned:
            self._lease(replace(assigned.job, failures=assigned.failures, token=assigned.job.token + 1))
        for created in changes.created:
            plan = created.plan
            taken = {block.ulid for block in plan.blocks}
            self.queues = [
                replace(queue, blocks=tuple(block for block in queue.blocks if block.ulid not in taken))
                for queue in self.queues
            ]
            job = JobView(
                id=0, name=plan.name, lane=plan.lane, tenant=plan.tenant, level=plan.level, state=JobState.WAITING
            )
            self.jobs[plan.name] = job
            if not self.is_reference:  # which assigns in a later poll
                self._lease(job)

    def _lease(self, job: JobView) -> None:
        expires_ms = self.now_ms + self.limits.lease_ms
        self.jobs[job.name] = replace(job, state=JobState.LEASED, worker=ME, lease_expires_ms=expires_ms)


def _returned(returned: ReturnJob) -> str:
    return f"{'parked' if returned.parked_reason else 'returned'} {returned.job.name} F{returned.failures}"
