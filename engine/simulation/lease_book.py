"""The leases of a schedule in memory: which are over, without any work when one is extended.

Nearly every poll extends leases and few look for those that are over, so a lease stands in line by a time before which
it cannot be over; once that has come, it is looked at, and stands in line again if it was extended meanwhile.
"""

from __future__ import annotations

import heapq

from engine.simulation.rows import MemoryJob


class LeaseBook:
    """Leased jobs. ``overdue`` are those that were found over and have not ended, nor been extended, since."""

    def __init__(self) -> None:
        self.overdue: dict[str, MemoryJob] = {}
        self._jobs: dict[str, tuple[int, MemoryJob]] = {}
        self._line: list[tuple[int, str]] = []

    def put(self, job: MemoryJob) -> None:
        """Take up a job whose lease was given, or extended after it was found over."""
        self.overdue.pop(job.name, None)
        known = self._jobs.get(job.name)
        if known is None or job.lease_expires_ms < known[0]:
            self._stand_in_line(job)

    def extend(self, job: MemoryJob) -> None:
        """Note that a job's lease ends later: nothing to do unless some were found over, this one perhaps."""
        if self.overdue:
            self.put(job)

    def remove(self, job: MemoryJob) -> None:
        """Forget a job that is not leased any more."""
        self.overdue.pop(job.name, None)
        self._jobs.pop(job.name, None)

    def expired(self, now_ms: int) -> list[MemoryJob]:
        """Return the jobs whose lease is strictly over, the longest first."""
        line = self._line
        while line and line[0][0] < now_ms:
            moment, name = heapq.heappop(line)
            known = self._jobs.get(name)
            if known is None or known[0] != moment:
                continue  # it ended since, or stands further in front
            job = known[1]
            if job.lease_expires_ms < now_ms:
                self.overdue[name] = job
                del self._jobs[name]
            else:
                self._stand_in_line(job)
        if not self.overdue:
            return []
        # Time that no command has taken goes back with the wall clock: what was over may not be over yet.
        over = [job for job in self.overdue.values() if job.lease_expires_ms < now_ms]
        return sorted(over, key=lambda job: (job.lease_expires_ms, job.id))

    def _stand_in_line(self, job: MemoryJob) -> None:
        self._jobs[job.name] = job.lease_expires_ms, job
        heapq.heappush(self._line, (job.lease_expires_ms, job.name))
