"""What a task says of its progress is there for the driver, in steps worth a write."""

from __future__ import annotations

from pathlib import Path

from engine.protocol.messages import Progress
from spark.progress_files import ProgressFile


def test_steps_and_phases_are_reported_and_nothing_in_between(tmp_path: Path) -> None:
    task, driver = ProgressFile(tmp_path, "job"), ProgressFile(tmp_path, "job")
    assert driver.read() is None
    seen = []
    for phase in ("download", "merge"):
        for done in range(1001):
            task.write(Progress(done=done, total=1000, phase=phase))
            if (found := driver.read()) not in seen:
                seen.append(found)
    assert seen == [
        Progress(done=done, total=1000, phase=phase) for phase in ("download", "merge") for done in range(0, 1001, 10)
    ]
    driver.remove()
    driver.remove()
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_progress_file_is_no_progress(tmp_path: Path) -> None:
    (tmp_path / "lithify-progress-job").write_text("[1, 2")
    assert ProgressFile(tmp_path, "job").read() is None
