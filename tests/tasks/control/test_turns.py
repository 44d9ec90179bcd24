"""One control task of a kind at a time on a machine."""

from __future__ import annotations

from pathlib import Path

from tasks.control.turns import only_one


def test_a_named_lock_is_held_once_and_released(tmp_path: Path) -> None:
    with only_one(tmp_path, "scan") as first, only_one(tmp_path, "scan") as second, only_one(tmp_path, "plan") as other:
        assert (first, second, other) == (True, False, True)
    with only_one(tmp_path, "scan") as again:
        assert again
