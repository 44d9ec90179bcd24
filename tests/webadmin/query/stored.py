"""Real segments in a store and in the index, and what happens to them: merges by the real engine, deletion."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.engine.query.naive import Folded
from tests.segments import SERVICES, make_segment, put_segment
from tests.webadmin.compacting import Compacting

Stacks = Counter[tuple[str, ...]]


@dataclass
class Stored(Compacting):
    """Profiles of tenant quarry; ``first_ms`` and ``last_ms`` are the times of the first and the last one."""

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
