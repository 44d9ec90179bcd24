"""What beat and control know of a lane: its control tasks and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

EXPIRE_SECONDS_MIN = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicJob:
    """A control task of a new installation, and its interval."""

    name: str
    task: str
    every_seconds: int

    @property
    def expire_seconds(self) -> int:
        """Age at which a task that no worker has started is dropped; the next run covers it."""
        return max(self.every_seconds, EXPIRE_SECONDS_MIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksManifest:
    """A lane in control workers. ``modules`` define its tasks with ``tasks.beat.app``."""

    name: str
    modules: Sequence[str]
    periodic_jobs: Sequence[PeriodicJob]
