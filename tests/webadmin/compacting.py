"""What happens to stored profiles: merges by the real engine, deletion of what they replaced."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.formats.profile_block.merge_model import Scratch
from engine.lanes.profiles.merge.merge import run
from engine.storage import ObjectStore
from tests.webadmin.service import Service
from webadmin.lanes.profiles.services import delete_tombstoned_objects
from webadmin.schedule.models import Limits


@dataclass
class Compacting:
    """A service, the store of its objects, and a folder for merges."""

    service: Service
    store: ObjectStore
    scratch: Path

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
