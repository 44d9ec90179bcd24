"""The control task that sweeps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from engine.formats.profile_block.container.object_names import block_key
from engine.storage import open_store
from tasks.beat import PERIODIC_JOBS, app
from tasks.lanes.profiles.manifest import SWEEP_ORPHANS_TASK, SWEEP_TASK
from tasks.lanes.profiles.sweeps import sweep_leftovers, sweep_orphans
from tests.block_factory import ulid
from tests.webadmin.service import Service
from webadmin.lanes.profiles.models import SweptTotal

DAY_MS = 24 * 3600 * 1000


def test_it_sweeps_the_store_of_the_settings_and_twice_is_harmless(
    real_service: Service, tmp_path: Path, settings: Any
) -> None:
    settings.OBJECT_STORE_URL = f"file://{tmp_path}"
    open_store(settings.OBJECT_STORE_URL).put("scratch/new", b"x")
    for _ in range(2):
        sweep_leftovers()
    assert (tmp_path / "scratch/new").exists()
    assert SweptTotal.objects.count() == 4


def test_a_bucket_whose_index_was_lost_is_not_swept_and_few_orphans_of_a_known_one_are(
    real_service: Service, tmp_path: Path, settings: Any
) -> None:
    settings.OBJECT_STORE_URL = f"file://{tmp_path}"
    store = open_store(settings.OBJECT_STORE_URL)
    key = block_key(1, "acme", 1, ulid(real_service.clock.now_ms - 3 * DAY_MS))
    store.put(key, b"data")
    os.utime(tmp_path / key, (1, 1))
    sweep_orphans()
    assert (tmp_path / key).exists(), "the index knows nothing, so it must not judge"
    real_service.add_segments(20)
    sweep_orphans()
    assert not (tmp_path / key).exists()


def test_a_new_installation_runs_them() -> None:
    app.loader.import_default_modules()
    assert {SWEEP_TASK, SWEEP_ORPHANS_TASK} <= {job.task for job in PERIODIC_JOBS} & set(app.tasks)
