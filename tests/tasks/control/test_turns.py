"""One control task of a kind at a time on a machine."""

from __future__ import annotations

from pathlib import Path

from tasks.control.turns import only_one


def test_a_turn_is_taken_once_and_given_back(tmp_path: Path) -> None:
    with only_one(tmp_path, "scan") as first, only_one(tmp_path, "scan") as second, only_one(tmp_path, "plan") as other:
        assert (first, second, other) == (True, False, True)
    with only_one(tmp_path, "scan") as again:
        assert again
