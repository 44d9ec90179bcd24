"""Capacity left under the queue limits of the schedule and of each lane. 0 means unlimited.

At the limit, one faulty job is parked for each job that is added, so a schedule full of faulty jobs does not block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from engine.schedule.model import JobView, ScheduleSnapshot


class QueueRoom:
    """The free places; ``evicted`` holds the faulty jobs that are to be parked."""

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
        """Reserve a place for a new job of the lane; return whether there was one or a faulty job could be evicted."""
        lane_left = self._lane_left.get(lane)
        if not (_has_place(self._left) and _has_place(lane_left)):
            victim = self._victim(lane if not _has_place(lane_left) else None)
            if victim is None:
                return False
            self._evict(victim)
        self._add(lane, -1)
        return True

    def _victim(self, lane: str | None) -> JobView | None:
        """Return a faulty job whose eviction frees a place, or None; above the limit one eviction is not enough."""
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
