"""How entries of the command log and completed jobs of a lane are counted: what arrived, what left, and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from webadmin.schedule.models import Command, Job


class CountedSource(NamedTuple):
    """A source that arrived or left. ``in_backlog`` is False if it is final, or of a parked job."""

    tenant: str
    shard: int
    level: int
    size_bytes: int
    in_backlog: bool = True


class LaneFlow:
    """The counts of a lane. This class is for lanes whose sources are not counted one by one."""

    annotations: ClassVar[Mapping[str, Any]] = {}
    """Annotations of the jobs that are passed to these methods; their ``spec`` is deferred."""

    def arrived(self, command: Command) -> Iterable[CountedSource]:
        """Return the sources that a command registered."""
        return ()

    def dropped(self, command: Command) -> Iterable[CountedSource]:
        """Return the sources that a command removed without a merge."""
        return ()

    def drained(self, job: Job) -> Mapping[int, tuple[int, int]]:
        """Return how many sources and bytes left each shard with a completed job."""
        return {job.shard: (job.source_count, job.source_bytes)}

    def results(self, job: Job) -> Iterable[CountedSource]:
        """Return the results of a completed job."""
        for _ in (job.result or {}).get("blocks", []):
            yield CountedSource(job.tenant, job.shard, job.level + 1, 0, in_backlog=False)

    def waited_seconds(self, job: Job, wall_ms: int) -> int:
        """Return how long before ``wall_ms`` the first source of a completed job was created; 0 if unknown."""
        return 0
