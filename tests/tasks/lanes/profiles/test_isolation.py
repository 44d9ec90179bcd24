"""The control task that looks for bad blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.protocol.messages import FailureReason
from tasks.beat import app
from tasks.lanes.profiles.isolation import isolate_bad_blocks
from tasks.lanes.profiles.manifest import ISOLATE_TASK
from tests.webadmin.service import Service
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.schedule.operation_models import JobSplit

BAD = FailureReason(error_class="Truncated", message="ends early")


def test_a_bad_segment_is_found_and_kept_apart(real_service: Service, tmp_path: Path, settings: Any) -> None:
    settings.OBJECT_STORE_URL = f"file://{tmp_path}"
    bad = real_service.add_segments(4)[2]
    real_service.add_segments(16)
    worker = real_service.worker()
    while not Quarantine.objects.exists():
        while taken := worker.take(4):
            for spec in taken:
                is_bad = bad in {source.id for source in spec.sources}
                worker.poll(worker.released(spec.job, BAD) if is_bad else worker.success(spec.job), capacity=0)
        before = JobSplit.objects.count()
        isolate_bad_blocks()
        assert JobSplit.objects.count() > before or Quarantine.objects.exists(), "each run comes closer"
    assert Quarantine.objects.get().block.ulid == bad
    assert Block.objects.filter(level=0, state="replaced").count() == 19
    before = real_service.dump()
    isolate_bad_blocks()
    assert real_service.dump() == before


def test_a_control_worker_knows_the_task_under_the_name_that_beat_sends() -> None:
    app.loader.import_default_modules()
    assert ISOLATE_TASK in app.tasks
