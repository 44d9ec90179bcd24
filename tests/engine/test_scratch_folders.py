"""Scratch folders: gone at the end, gone after a kill, and never taken from a run that lives."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

from engine.scratch_folders import scratch_folder, sweep_scratch

HOLDER = """
import sys
from pathlib import Path
from engine.scratch_folders import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "part").write_bytes(b"x")
    print(folder, flush=True)
    sys.stdin.read()
"""


def folders(parent: Path) -> list[Path]:
    return [path for path in parent.iterdir() if path.is_dir()]


def stumble_in_a_folder(parent: Path) -> Path:
    with contextlib.suppress(FileNotFoundError), scratch_folder(parent) as folder:
        assert list(folder.iterdir()) == []
        (folder / "part").write_bytes(b"x")
        (folder / "missing").read_bytes()
    return folder


def test_a_folder_is_empty_at_first_and_gone_at_the_end(tmp_path: Path) -> None:
    folder = stumble_in_a_folder(tmp_path / "new")
    assert not folder.exists()
    assert folders(tmp_path / "new") == []


def test_the_folder_of_a_killed_process_is_swept_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        held = Path(process.stdout.readline().strip())
        assert sweep_scratch(tmp_path) == 0
        with scratch_folder(tmp_path):
            assert (held / "part").exists()
        process.kill()
        process.wait()
    assert (held / "part").exists()
    with scratch_folder(tmp_path) as own:
        assert folders(tmp_path) == [own.parent]


def test_there_is_nothing_to_sweep_where_nothing_is(tmp_path: Path) -> None:
    assert sweep_scratch(tmp_path / "nowhere") == 0
