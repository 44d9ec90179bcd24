"""One control task of a kind at a time on a machine."""

from __future__ import annotations

from pathlib import Path

from tasks.control.task_lock import task_lock


def test_a_named_lock_is_held_once_and_released(tmp_path: Path) -> None:
    with (
        task_lock(tmp_path, "scan") as first,
        task_lock(tmp_path, "scan") as second,
        task_lock(tmp_path, "plan") as other,
    ):
        assert (first, second, other) == (True, False, True)
    with task_lock(tmp_path, "scan") as again:
        assert again
