"""Wait until the schedule has no work left: the fix-point."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db.models import Count, Q

from engine.core.errors import LithifyError
from engine.schedule.model import LIVE_STATES, JobState
from webadmin.embedded.demo.figures import LiveBlock
from webadmin.lanes.profiles.masks import visible_datasets
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.models import Job

LOOK_SECONDS = 0.25
SILENCE_SECONDS_MAX = 180.0  # Without any change; longer than the first start of Spark on a slow machine.


class CompactionStalled(LithifyError):
    """The compaction makes no progress: see the compactor's lines in the log of the stack."""

    code = "nothing_happens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """State of the compaction. ``unsettled`` blocks are queued, in a job, or not final."""

    unsettled: int
    live: int
    parked_jobs: int
    done: int
    running: int
    waiting: int
    queued_by_level: tuple[tuple[int, int], ...]

    @property
    def text(self) -> str:
        """Return the state as one line of text."""
        queued = " ".join(f"L{level}:{count}" for level, count in self.queued_by_level) or "none"
        parked = f", {self.parked_jobs} parked" if self.parked_jobs else ""
        return f"{self.live} live objects, queued {queued}; jobs {self.done} done, {self.running} running{parked}"


def read_progress() -> Progress:
    """Read the state of the compaction.

    ``unsettled`` is one statement: a block moves from queue to job to result, and two statements could miss it.
    """
    has_live_job = Q(state=BlockState.OWNED, owner_job__state__in=[state.value for state in LIVE_STATES])
    jobs = dict(Job.objects.order_by().values_list("state").annotate(Count("id")))
    queued = Block.objects.filter(state=BlockState.QUEUED).order_by("level")
    return Progress(
        unsettled=Block.objects.filter(Q(state=BlockState.QUEUED) | has_live_job).count(),
        live=live_count(),
        parked_jobs=jobs.get(JobState.PARKED.value, 0),
        done=jobs.get(JobState.DONE.value, 0),
        running=jobs.get(JobState.LEASED.value, 0),
        waiting=jobs.get(JobState.WAITING.value, 0),
        queued_by_level=tuple(queued.values_list("level").annotate(Count("id"))),
    )


def wait_for_the_fix_point(
    on_change: Callable[[Progress], None], *, silence_seconds: float = SILENCE_SECONDS_MAX
) -> Progress:
    """Call ``on_change`` on every change until no block is unsettled.

    Raises CompactionStalled after ``silence_seconds`` without a change.
    """
    last, changed_at = None, time.monotonic()
    pause = threading.Event()
    while True:
        now = read_progress()
        if now != last:
            on_change(now)
            last, changed_at = now, time.monotonic()
        if now.unsettled == 0:
            return now
        if time.monotonic() - changed_at > silence_seconds:
            raise CompactionStalled(f"for {silence_seconds:g} s nothing changed: {now.text}")
        pause.wait(LOOK_SECONDS)


def live_count() -> int:
    """Return the number of blocks that queries read."""
    return Block.objects.live().count()


def live_blocks() -> list[LiveBlock]:
    """Return every block that queries read, in the order of registration."""
    rows = list(Block.objects.live().order_by("id").values_list("id", "object_key", "level", "size_bytes", "metadata"))
    visible = visible_datasets([row[0] for row in rows])
    return [
        LiveBlock(key=key, level=level, size=size, metadata=bytes(data), visible=visible[row_id])
        for row_id, key, level, size, data in rows
    ]
