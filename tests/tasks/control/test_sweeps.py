"""The control task that sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.storage import open_store
from tasks.beat import PERIODIC_JOBS, SWEEP_TASK, app
from tasks.control.sweeps import sweep_leftovers
from tests.webadmin.service import Service
from webadmin.index.models import SweptTotal


def test_it_sweeps_the_store_of_the_settings_and_twice_is_harmless(
    real_service: Service, tmp_path: Path, settings: Any
) -> None:
    settings.OBJECT_STORE_URL = f"file://{tmp_path}"
    open_store(settings.OBJECT_STORE_URL).put("scratch/new", b"x")
    for _ in range(2):
        sweep_leftovers()
    assert (tmp_path / "scratch/new").exists()
    assert SweptTotal.objects.count() == 4


def test_a_new_installation_runs_it() -> None:
    app.loader.import_default_modules()
    assert SWEEP_TASK in {job.task for job in PERIODIC_JOBS} & set(app.tasks)
