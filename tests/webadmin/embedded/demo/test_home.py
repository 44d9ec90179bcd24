"""The demonstration empties its own folder, and never one that holds something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from webadmin.embedded.demo.home import NotADemoHome, demo_environment, wipe_home
from webadmin.embedded.errors import HomeInUse
from webadmin.embedded.stack_home import locked_home


def test_a_missing_or_empty_folder_becomes_a_home(tmp_path: Path) -> None:
    wipe_home(tmp_path / "new" / "demo")
    assert (tmp_path / "new" / "demo").is_dir()


def test_what_the_last_demonstration_left_is_gone(tmp_path: Path) -> None:
    wipe_home(tmp_path)
    (tmp_path / "objects" / "segments").mkdir(parents=True)
    (tmp_path / "lithify.sqlite3").write_text("old")
    wipe_home(tmp_path)
    assert not (tmp_path / "objects").exists()
    assert not (tmp_path / "lithify.sqlite3").exists()


def test_a_folder_with_other_things_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(NotADemoHome, match="holds other things"):
        wipe_home(tmp_path)
    assert (tmp_path / "letters.txt").read_text() == "mine"


def test_a_link_inside_is_removed_and_what_it_points_to_is_kept(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("mine")
    wipe_home(home)
    (home / "link").symlink_to(elsewhere)
    wipe_home(home)
    assert not (home / "link").exists()
    assert (elsewhere / "kept").read_text() == "mine"


def test_a_home_in_use_is_not_wiped(tmp_path: Path) -> None:
    wipe_home(tmp_path)
    (tmp_path / "lithify.sqlite3").write_text("in use")
    with locked_home(tmp_path), pytest.raises(HomeInUse):
        wipe_home(tmp_path)
    assert (tmp_path / "lithify.sqlite3").exists()


def test_nothing_of_a_real_installation_reaches_the_demonstration(tmp_path: Path) -> None:
    real = {
        "PATH": "/bin",
        "DATABASE_URL": "postgresql://real",
        "OBJECT_STORE_URL": "s3://real",
        "LITHIFY_HOME": "real",
    }
    assert demo_environment(real, tmp_path) == {"PATH": "/bin", "LITHIFY_HOME": str(tmp_path)}
