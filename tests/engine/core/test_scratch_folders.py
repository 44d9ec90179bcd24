"""Scratch folders: gone at the end, gone after a kill, and never taken from a run that lives."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.core.scratch_folders import reserve_space, scratch_folder, sweep_scratch

HOLDER = """
import sys
from pathlib import Path
from engine.core.scratch_folders import scratch_folder
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


def test_what_others_have_claimed_and_not_yet_written_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with scratch_folder(tmp_path) as first, scratch_folder(tmp_path) as second:
        assert reserve_space(first, 70_000) == 100_000
        assert reserve_space(second, 40_000) == 30_000  # and nothing is claimed
        assert reserve_space(first, 80_000) == 100_000
        assert reserve_space(second, 20_000) == 20_000
        (first / "chunks").mkdir()
        (first / "chunks" / "000001").write_bytes(bytes(40_960))
        assert 60_000 <= reserve_space(second, 20_000) <= 70_000
    with scratch_folder(tmp_path) as third:
        assert reserve_space(third, 100_000) == 100_000


def test_a_claim_of_a_killed_process_is_swept(tmp_path: Path) -> None:
    program = HOLDER.replace("import scratch_folder", "import reserve_space, scratch_folder").replace(
        "    print",
        "    reserve_space(folder, 1)\n    (folder.parent / 'reservation').write_text(str(1 << 60))\n    print",
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        with scratch_folder(tmp_path) as folder:
            assert reserve_space(folder, 1) < 0
            process.kill()
            process.wait()
            assert reserve_space(folder, 1) > 0
