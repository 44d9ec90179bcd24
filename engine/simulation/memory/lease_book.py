"""The leases of a schedule in memory; finds expired leases without work at renewals.

Nearly every poll renews leases and few need expired ones, so a lease is queued by a lower bound of its end. When that
time has come, the lease is checked and queued again if it was renewed since.
"""

from __future__ import annotations

import heapq

from engine.simulation.memory.rows import MemoryJob


class LeaseBook:
    """Leased jobs. ``overdue`` holds jobs whose lease was found expired and has not been renewed or ended since."""

    def __init__(self) -> None:
        self.overdue: dict[str, MemoryJob] = {}
        self._jobs: dict[str, tuple[int, MemoryJob]] = {}
        self._line: list[tuple[int, str]] = []

    def put(self, job: MemoryJob) -> None:
        """Add a job whose lease was granted, or renewed after it was found expired."""
        self.overdue.pop(job.name, None)
        known = self._jobs.get(job.name)
        if known is None or job.lease_expires_ms < known[0]:
            self._enqueue(job)

    def extend(self, job: MemoryJob) -> None:
        """Record a renewal; no work unless the lease was found expired."""
        if self.overdue:
            self.put(job)

    def remove(self, job: MemoryJob) -> None:
        """Remove a job that is no longer leased."""
        self.overdue.pop(job.name, None)
        self._jobs.pop(job.name, None)

    def expired(self, now_ms: int) -> list[MemoryJob]:
        """Return the jobs whose lease has strictly ended, earliest end first."""
        line = self._line
        while line and line[0][0] < now_ms:
            moment, name = heapq.heappop(line)
            known = self._jobs.get(name)
            if known is None or known[0] != moment:
                continue  # it has ended, or has an earlier entry
            job = known[1]
            if job.lease_expires_ms < now_ms:
                self.overdue[name] = job
                del self._jobs[name]
            else:
                self._enqueue(job)
        if not self.overdue:
            return []
        # Command time may go back with the wall clock, so an expired lease may become valid again.
        over = [job for job in self.overdue.values() if job.lease_expires_ms < now_ms]
        return sorted(over, key=lambda job: (job.lease_expires_ms, job.id))

    def _enqueue(self, job: MemoryJob) -> None:
        self._jobs[job.name] = job.lease_expires_ms, job
        heapq.heappush(self._line, (job.lease_expires_ms, job.name))
