"""The comparison of a machine before and after a run: what it finds, and what it leaves to other programs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from engine.recording.programs import PROGRAMS
from tests.outside import Entry, Listing, Scope, allowed_folders, differences, list_outside

SOCKET = stat.S_IFSOCK | 0o666
FILE = stat.S_IFREG | 0o644
DEVICE = stat.S_IFCHR | 0o666


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    """A small machine. Its null device is a socket: only root may make devices."""
    for folder in ("dev", "usr/lib/__pycache__", "home/.config", "home/papers", "data"):
        (tmp_path / folder).mkdir(parents=True)
    os.mknod(tmp_path / "dev" / "null", SOCKET)
    for file in ("usr/lib/module.py", "home/notes", "home/papers/draft", "data/rows"):
        (tmp_path / file).write_text("as it was")
    return Scope(
        devices=tmp_path / "dev",
        names=frozenset({str(tmp_path), str(tmp_path / "home")}),
        whole=frozenset({str(tmp_path / "usr")}),
        allowed=frozenset({str(tmp_path / "data")}),
    )


def test_equal_machines_have_no_differences(scope: Scope) -> None:
    assert differences(list_outside(scope), list_outside(scope), scope) == []


def test_each_change_outside_is_named_with_what_changed(scope: Scope, tmp_path: Path) -> None:
    before = list_outside(scope)
    (tmp_path / "dev" / "null").unlink()
    (tmp_path / "dev" / "null").touch()
    (tmp_path / "usr" / "lib" / "module.py").write_text("as it is not")
    (tmp_path / "usr" / "lib" / "new").touch(0o600)
    (tmp_path / "home" / "notes").unlink()
    (tmp_path / "home" / ".config").chmod(0o700)
    found = differences(before, list_outside(scope), scope)
    assert [line.partition(": ")[0].removeprefix(f"{tmp_path}/") for line in found] == [
        *("dev/null", "home/.config", "home/notes", "usr/lib/module.py", "usr/lib/new")
    ]
    assert "was srw" in found[0]
    assert "is -rw" in found[0]
    assert "is drwx------" in found[1]
    assert "is not there" in found[2]
    assert "9 bytes" in found[3]
    assert "12 bytes" in found[3]
    assert "was not there" in found[4]


def test_what_other_programs_and_the_run_itself_may_write_is_not_compared(scope: Scope, tmp_path: Path) -> None:
    before = list_outside(scope)
    (tmp_path / "data" / "rows").write_text("of the run itself")
    (tmp_path / "home" / "notes").write_text("written by a person")
    (tmp_path / "home" / "papers" / "draft").unlink()
    (tmp_path / "usr" / "lib" / "__pycache__" / "module.pyc").touch()
    assert differences(before, list_outside(scope), scope) == []


def test_device_numbers_and_modes_are_compared_and_new_devices_are_the_kernels() -> None:
    null = Entry(DEVICE, os.makedev(1, 3))
    before = Listing({"/dev/null": null, "/dev/zero": Entry(DEVICE, os.makedev(1, 5)), "/dev/tty": null})
    after = Listing(
        {
            "/dev/null": Entry(DEVICE, os.makedev(1, 7)),
            "/dev/zero": Entry(stat.S_IFCHR | 0o600, os.makedev(1, 5)),
            "/dev/usb1": Entry(DEVICE, os.makedev(189, 1)),
            "/dev/left": Entry(FILE),
        }
    )
    assert differences(before, after) == [
        "/dev/left: was not there, is -rw-r--r--",
        "/dev/null: was crw-rw-rw-, device 1:3, is crw-rw-rw-, device 1:7",
        "/dev/tty: was crw-rw-rw-, device 1:3, is not there",
        "/dev/zero: was crw-rw-rw-, device 1:5, is crw-------, device 1:5",
    ]


def test_files_of_a_package_manager_that_ran_meanwhile_are_its_own(scope: Scope, tmp_path: Path) -> None:
    file, device = str(tmp_path / "usr" / "bin"), str(tmp_path / "dev" / "null")
    before = Listing({file: Entry(FILE, size=1), device: Entry(SOCKET)}, packages_ns=(1,))
    after = Listing({file: Entry(FILE, size=2), device: Entry(FILE)}, packages_ns=(2,))
    assert [line.partition(": ")[0] for line in differences(before, after, scope)] == [device]
    assert len(differences(before, Listing(after.entries, (1,)), scope)) == 2


def test_the_machine_is_listed_but_for_the_places_a_run_may_write_to(tmp_path: Path) -> None:
    listing = list_outside(Scope(whole=frozenset({os.path.dirname(os.path.realpath(sys.executable))})))
    assert listing.entries["/dev/null"] == Entry(os.stat(os.devnull).st_mode, os.stat(os.devnull).st_rdev)
    assert os.path.realpath(sys.executable) in listing.entries
    assert not [path for path in listing.entries if path.startswith((f"{tmp_path}/", f"{Path(__file__).parents[1]}/"))]
    assert "/" not in allowed_folders()


def test_the_compiler_of_the_recorded_programs_replaces_a_device_and_is_found_out(scope: Scope, tmp_path: Path) -> None:
    (compiler,) = (program.command for program in PROGRAMS if program.service == "kernel-compiler")
    assert os.devnull not in compiler
    (tmp_path / "data" / "small.pyx").write_text("one = 1\n")
    before = list_outside(scope)
    output = compiler.index("--output-file") + 1
    command = [*compiler[:output], str(tmp_path / "dev" / "null"), str(tmp_path / "data" / "small.pyx")]
    subprocess.run([sys.executable, *command], check=True, timeout=60)
    (found,) = differences(before, list_outside(scope), scope)
    assert found.startswith(f"{tmp_path}/dev/null: was srw")
