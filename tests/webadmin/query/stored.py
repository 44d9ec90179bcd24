"""Real segments in a store and in the index, and what happens to them: merges by the real engine, deletion."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from engine.profiles.merge import run
from engine.profiles.merge_model import Scratch
from engine.storage import ObjectStore
from tests.engine.profiles.query.naive import Folded
from tests.segments import SERVICES, make_segment, put_segment
from tests.webadmin.service import Service
from webadmin.index.services import delete_tombstoned_objects
from webadmin.schedule.models import Limits

Stacks = Counter[tuple[str, ...]]


@dataclass
class Stored:
    """Profiles of tenant quarry; ``first_ms`` and ``last_ms`` are the times of the first and the last one."""

    service: Service
    store: ObjectStore
    scratch: Path
    first_ms: int = 0
    last_ms: int = 0
    keys: list[str] = field(default_factory=list)

    def write(self, count: int, services: tuple[str, ...] = SERVICES) -> None:
        """Write and register segments, half a second apart."""
        for number in range(count):
            time_ms = int(self.service.clock.now_ms)
            data, meta = make_segment(time_ms, seed=number, tenants=("quarry",), services=services)
            self.keys.append(put_segment(self.store, data, meta).key)
            assert self.service.add(meta).accepted == (meta.id,)
            self.first_ms, self.last_ms = self.first_ms or time_ms, time_ms
            self.service.clock.advance(0.5)

    def compact(self) -> int:
        """Do all merges that are due in a minute; return how many."""
        Limits.objects.update(cleanup_delay_seconds=0)
        worker, done = self.service.worker(), 0
        for _ in range(30):
            for spec in worker.take(4):
                result = run(spec, self.store, scratch=Scratch(self.scratch))
                worker.poll(worker.success(spec.job, result), capacity=0)
                done += 1
            self.service.clock.advance(2)
        return done

    def delete_replaced(self) -> int:
        """Let the deletion delay pass and delete what was replaced; return how many objects."""
        deleted = 0
        for _ in range(5):
            self.service.clock.advance(10)
            self.service.worker().poll(capacity=0)
            deleted += delete_tombstoned_objects(store=self.store).deleted
        return deleted


class Interrupted(Folded):
    """Adds up stacks, and lets something happen once, before the stacks of its ``number``-th dataset are added."""

    def __init__(self, happen, number: int) -> None:
        super().__init__()
        self._happen = happen
        self._number = number

    def add_stacks(self, *arguments) -> None:
        if self._number == 0:
            self._happen()
        self._number -= 1
        super().add_stacks(*arguments)
