"""The place of a job in its tenant's queue as one number that never changes while the job waits, so it can be indexed.

``priority = ready + bytes * delay + failures * delay``: the smallest comes first. Small jobs go first because large
ones start with a delay; large ones do not starve because the delay is bounded: a job that has waited longer than
``SIZE_DELAY_MAX_MS + FAILURE_DELAY_MAX_MS`` comes before every job that becomes ready now.
"""

from __future__ import annotations

SIZE_DELAY_MS_PER_MIB = 50
"""How much later a job of one MiB more counts as ready: about what merging it takes."""
SIZE_DELAY_MAX_MS = 600_000
"""No job waits longer than this for smaller ones."""
FAILURE_DELAY_MS = 60_000
"""How much later a job counts as ready for each failure: what fails again and again lets others pass."""
FAILURE_DELAY_MAX_MS = 600_000
"""No job waits longer than this for those that failed less."""
URGENCY_DELAY_MAX_MS = 600_000
"""No job waits longer than this for more urgent ones, where a lane says how urgent its jobs are."""


def urgent_priority_ms(*, ready_at_ms: int, priority: int, unit: int) -> int:
    """Return the moment by which a job of a priority up to ``unit`` stands in line; the size makes no difference."""
    return ready_at_ms + URGENCY_DELAY_MAX_MS * (unit - priority) // unit


def job_priority_ms(*, ready_at_ms: int, size_bytes: int, failures: int = 0) -> int:
    """Return the moment by which a job stands in line."""
    size_delay = min(size_bytes * SIZE_DELAY_MS_PER_MIB >> 20, SIZE_DELAY_MAX_MS)
    return ready_at_ms + size_delay + min(failures * FAILURE_DELAY_MS, FAILURE_DELAY_MAX_MS)
