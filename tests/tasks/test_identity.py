"""A node's name is held by one process; its scratch folder starts empty."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.settings.base import BadSetting
from tasks.errors import NodeNameTaken
from tasks.identity import claim_name


def test_a_wanted_name_is_given_once(tmp_path: Path) -> None:
    first = claim_name(tmp_path, "sand")
    with pytest.raises(NodeNameTaken):
        claim_name(tmp_path, "sand")
    first.release()
    again = claim_name(tmp_path, "sand")
    assert again.name == "sand"
    again.release()


def test_nodes_without_a_wanted_name_are_numbered(tmp_path: Path) -> None:
    first, second = claim_name(tmp_path), claim_name(tmp_path)
    assert second.name == f"{first.name}-2"
    assert first.scratch != second.scratch
    first.release()
    second.release()


def test_a_killed_holder_does_not_keep_its_name(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal, sys\n"
        "from tasks.identity import claim_name\n"
        "claim_name(pathlib.Path(sys.argv[1]), 'sand')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert ended.returncode == -9
    claim_name(tmp_path, "sand").release()


def test_claiming_wipes_what_an_earlier_run_left(tmp_path: Path) -> None:
    first = claim_name(tmp_path, "sand")
    first.release()
    left = first.scratch / "job" / "section-1"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    again = claim_name(tmp_path, "sand")
    assert list(again.scratch.iterdir()) == []
    again.release()


@pytest.mark.parametrize("name", ["../up", "a/b", " ", "x" * 101, "näme"])
def test_a_name_that_is_no_path_part_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadSetting):
        claim_name(tmp_path, name)
