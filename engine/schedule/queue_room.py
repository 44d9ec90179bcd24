"""How many more jobs fit under the queue limits, of the schedule and of each lane. 0 means without limit.

A place is made by parking a faulty job where there is none: one for each job that is added, so that a schedule full of
faulty jobs never stands still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from engine.schedule.model import JobView, ScheduleSnapshot


class QueueRoom:
    """The places left; ``evicted`` are the faulty jobs that had to go."""

    def __init__(self, snapshot: ScheduleSnapshot, *, freed: Iterable[JobView], faulty: Sequence[JobView]) -> None:
        freed = list(freed)
        gone = Counter(job.lane for job in freed)
        self.evicted: list[JobView] = []
        self._faulty = faulty
        self._left = _places(snapshot.limits.queue_max, snapshot.live_job_count - len(freed))
        self._lane_left = {
            lane.lane: _places(lane.queue_max, lane.live_job_count - gone[lane.lane]) for lane in snapshot.lanes
        }

    def take(self, lane: str) -> bool:
        """Take a place for a new job of this lane; False if there is none and none can be made."""
        lane_left = self._lane_left.get(lane)
        if not (_has_place(self._left) and _has_place(lane_left)):
            victim = self._victim(lane if not _has_place(lane_left) else None)
            if victim is None:
                return False
            self._evict(victim)
        self._add(lane, -1)
        return True

    def _victim(self, lane: str | None) -> JobView | None:
        """Return the faulty job whose place is enough; above the limit one place is not, so none goes for nothing."""
        for job in self._faulty:
            if job in self.evicted or lane not in (None, job.lane):
                continue
            after = (self._left, self._lane_left.get(job.lane) if lane else None)
            if all(left is None or left + 1 > 0 for left in after):
                return job
        return None

    def _evict(self, job: JobView) -> None:
        self.evicted.append(job)
        self._add(job.lane, 1)

    def _add(self, lane: str, count: int) -> None:
        if self._left is not None:
            self._left += count
        left = self._lane_left.get(lane)
        if left is not None:
            self._lane_left[lane] = left + count


def _places(queue_max: int, live_count: int) -> int | None:
    return queue_max - live_count if queue_max else None


def _has_place(left: int | None) -> bool:
    return left is None or left > 0
