"""Simulated workers: they poll, run, upload and report; and crash, stall or repeat requests."""

from __future__ import annotations

from engine.lanes.profiles.jobs import ProfileMergeResult
from engine.protocol.messages import FailureReason
from engine.schedule.isolation import OBJECT_NOT_FOUND
from engine.simulation.environment.worker import Run, Worker
from engine.simulation.environment.world import World
from engine.simulation.environment.writers import Writers
from engine.simulation.memory.results import merge
from engine.simulation.memory.snapshots import PollRequest
from engine.simulation.scenario import Fault

BUILD = "simulated"
RESTART_S = 20.0
"""Maximum seconds until a crashed worker restarts."""

POLL_FAULTS = (
    Fault.CRASH_BEFORE_UPLOAD,
    Fault.CRASH_AFTER_UPLOAD,
    Fault.CRASH_AFTER_REPORT,
    Fault.LOST_RESPONSE,
    Fault.DUPLICATE_DELIVERY,
    Fault.PAUSE,
    Fault.RACE,
    Fault.RELEASE,
    Fault.FAILED_RUN,
    Fault.BAD_RESULT,
)

RunOfLife = tuple[Worker, int, Run]


class WorkerFleet:
    """All workers. Faults are drawn once per poll."""

    def __init__(self, world: World, writers: Writers) -> None:
        self.world = world
        self.poisoned = writers.poisoned
        fleet = world.scenario.fleet
        self.prices = fleet
        self.workers = [
            Worker(f"node-{number}", number, fleet.slots, clock_error_ms=number * fleet.clock_error_ms)
            for number in range(fleet.workers)
        ]
        self._plan = world.events.put
        self._poll_ms = round(fleet.poll_s * 1000)
        self._faults = [fault for fault in POLL_FAULTS if fault in world.scenario.faults]
        self._rate = world.scenario.trouble_rate if self._faults else 0.0
        self._actions = {
            Fault.CRASH_BEFORE_UPLOAD: self._crash,
            Fault.CRASH_AFTER_UPLOAD: self._crash_after_upload,
            Fault.CRASH_AFTER_REPORT: self._crash_after_report,
            Fault.LOST_RESPONSE: self._poll_unheard,
            Fault.DUPLICATE_DELIVERY: self._poll_twice,
            Fault.PAUSE: self._pause,
            Fault.RACE: self._race,
            Fault.RELEASE: self._release,
            Fault.FAILED_RUN: self._fail_run,
            Fault.BAD_RESULT: self._report_wrong_sources,
        }

    def start(self) -> None:
        """Schedule the first poll of every worker, spread over one period."""
        for worker in self.workers:
            first_ms = self.world.random.randrange(self._poll_ms)
            self._poll_at(worker, self.world.now_ms + first_ms)

    def free_slots(self) -> int:
        """Return the number of free job slots."""
        return sum(worker.slots - worker.running for worker in self.workers)

    # Normal operation

    def _poll_at(self, worker: Worker, when_ms: int) -> None:
        """Reschedule the worker's next poll."""
        worker.next_poll_ms = when_ms
        self._plan(when_ms, self._wake, (worker, when_ms))

    def _wake(self, planned: tuple[Worker, int]) -> None:
        worker, when_ms = planned
        if worker.next_poll_ms != when_ms:
            return
        world = self.world
        now_ms = world.now_ms
        if now_ms < worker.paused_until_ms:
            self._poll_at(worker, worker.paused_until_ms)
            return
        self._poll_at(worker, now_ms + self._poll_ms)
        if now_ms < world.away_until_ms:
            return
        if self._rate and not world.is_draining and world.random.random() < self._rate:
            fault = world.random.choice(self._faults)
            world.tally.faults[fault] = world.tally.faults.get(fault, 0) + 1
            self._actions[fault](worker)
        else:
            self._poll(worker)

    def _poll(self, worker: Worker) -> None:
        self._ask(worker, worker.request())

    def _ask(self, worker: Worker, request: PollRequest) -> None:
        renewed, assigned = self.world.service.poll(request)
        worker.apply_answer(request, renewed, self.world.schedule.last_index)
        for job in assigned:
            self._begin(worker, worker.take(job))

    def _begin(self, worker: Worker, run: Run) -> None:
        world = self.world
        world.tally.runs += 1
        run_ms = self.prices.run_ms(sum([source.size_bytes for source in run.sources]))
        world.tally.busy_ms += run_ms
        world.at(world.now_ms + run_ms, self._finish, (worker, worker.life, run))

    def _finish(self, of_life: RunOfLife) -> None:
        worker, life, run = of_life
        if worker.life != life or run.is_over or worker.runs.get(run.job) is not run:
            return
        world = self.world
        if world.now_ms < worker.paused_until_ms:
            world.at(worker.paused_until_ms, self._finish, of_life)
            return
        if worker.next_poll_ms != world.now_ms:
            self._poll_at(worker, world.now_ms)
        if (reason := self._damage(worker, run)) is not None:
            worker.give_back(run, reason)
            return
        result = merge(run.job, run.sources, run.token, run.masks)
        world.objects.update([block.id for block in result.blocks])
        worker.succeed(run, result)
        if worker.crashes_after_upload:
            self._crash(worker)

    def _damage(self, worker: Worker, run: Run) -> FailureReason | None:
        """Return the failure reason if a source is damaged or lost (the first one), else None."""
        if not self.poisoned and not self.world.lost:
            return None
        for source in run.sources:
            if source.ulid in self.world.lost:
                return self._reason(worker, OBJECT_NOT_FOUND, source.ulid)
            if source.ulid in self.poisoned:
                return self._reason(worker, "Truncated", source.ulid)
        return None

    def _reason(self, worker: Worker, error_class: str, ulid: str = "") -> FailureReason:
        """Return a failure reason with the time of the worker's own clock."""
        clock_ms = self.world.now_ms + worker.clock_error_ms
        return FailureReason(error_class=error_class, message=f"at {clock_ms}", object=ulid, build=BUILD)

    # Faults

    def _crash(self, worker: Worker) -> None:
        worker.crash()
        self._poll_at(worker, self.world.now_ms + round(1000 * RESTART_S * self.world.random.random()))

    def _crash_after_upload(self, worker: Worker) -> None:
        worker.crashes_after_upload = True
        self._poll(worker)

    def _crash_after_report(self, worker: Worker) -> None:
        self._poll_unheard(worker)
        self._crash(worker)

    def _poll_unheard(self, worker: Worker) -> None:
        self.world.service.poll(worker.request())
        worker.lose()

    def _poll_twice(self, worker: Worker) -> None:
        """Deliver a poll twice: at once, or after a delay."""
        request = worker.request()
        self._ask(worker, request)
        delay_s = self.world.random.choice([0.0, 3.0, 40.0])
        self.world.after(delay_s, self._redeliver, request)

    def _redeliver(self, request: PollRequest) -> None:
        if not self.world.is_away():
            self.world.service.poll(request)

    def _pause(self, worker: Worker) -> None:
        """Pause the worker for longer than a lease; it sends its pending request afterwards."""
        lease_ms = self.world.schedule.limits.lease_ms
        worker.paused_until_ms = self.world.now_ms + round(lease_ms * (0.5 + 3 * self.world.random.random()))

    def _race(self, worker: Worker) -> None:
        """Run another worker's poll between the prepare and the apply of this worker's poll."""
        other = self.world.random.choice(self.workers)
        service = self.world.service

        def poll_of_another() -> None:
            service.between = None
            if other is not worker:
                self._poll(other)

        service.between = poll_of_another
        self._poll(worker)
        service.between = None

    def _release(self, worker: Worker) -> None:
        for run in worker.runs.values():
            worker.give_back(run, None)
        self._poll(worker)

    def _fail_run(self, worker: Worker) -> None:
        for run in list(worker.runs.values())[:1]:
            worker.give_back(run, self._reason(worker, "MergeFailed"))
        self._poll(worker)

    def _report_wrong_sources(self, worker: Worker) -> None:
        """Report a success with the results of other sources."""
        for run in list(worker.runs.values())[:1]:
            worker.succeed(run, ProfileMergeResult(sources=("nothing",), blocks=()))
        self._poll(worker)
