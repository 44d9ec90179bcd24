"""Priority of a job within its tenant: one number that does not change while the job waits, so it can be indexed.

``priority = ready + bytes * delay + failures * delay``; the smallest is served first. Small jobs precede large ones
because large jobs get a delay. Large jobs do not starve because the delay is bounded: a job that has waited longer than
``SIZE_DELAY_MAX_MS + FAILURE_DELAY_MAX_MS`` precedes every job that becomes ready now.
"""

from __future__ import annotations

SIZE_DELAY_MS_PER_MIB = 50
"""Delay per MiB of sources: about the time of their merge."""
SIZE_DELAY_MAX_MS = 600_000
"""Upper bound of the delay by size."""
FAILURE_DELAY_MS = 60_000
"""Delay per failure, so that jobs that fail repeatedly do not hold up others."""
FAILURE_DELAY_MAX_MS = 600_000
"""Upper bound of the delay by failures."""
URGENCY_DELAY_MAX_MS = 600_000
"""Upper bound of the delay by urgency, in lanes whose jobs have a priority of their own."""


def urgent_priority_ms(*, ready_at_ms: int, priority: int, unit: int) -> int:
    """Return the sort time of a job with ``priority`` from 0 to ``unit`` (most urgent), regardless of its size."""
    return ready_at_ms + URGENCY_DELAY_MAX_MS * (unit - priority) // unit


def job_priority_ms(*, ready_at_ms: int, size_bytes: int, failures: int = 0) -> int:
    """Return the sort time of a job."""
    size_delay = min(size_bytes * SIZE_DELAY_MS_PER_MIB >> 20, SIZE_DELAY_MAX_MS)
    return ready_at_ms + size_delay + min(failures * FAILURE_DELAY_MS, FAILURE_DELAY_MAX_MS)
