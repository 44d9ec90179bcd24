"""The wheel, installed into an empty environment, runs; it holds the packages and nothing of tests or docs."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("wheel")  # built once

ROOT = Path(__file__).parents[1]
BUNDLE = "webadmin/console/static/console/bundle"


def _run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=environment.pop("cwd", str(ROOT)),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as ``python -m build`` makes it, from a copy of what git tracks (so no stray file can slip in)."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    names = _run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    names += [str(path.relative_to(ROOT)) for path in (ROOT / BUNDLE).glob("*")]  # built, and not tracked
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source, CFLAGS="-O0")
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_packages_and_no_tests_or_docs(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {"engine", "spark", "tasks", "webadmin"} <= tops
    assert {top for top in tops if not top.endswith(".dist-info")} == {"engine", "spark", "tasks", "webadmin"}
    kernel = "engine/lanes/profiles/merge/_dataset_merge."
    assert any(name.startswith(kernel) and name.endswith(".so") for name in names)
    assert any(name.endswith("/migrations/0001_initial.py") for name in names)
    assert not [name for name in names if "/frontend/" in name]
    bundled = {name for name in names if name.startswith(BUNDLE)}
    assert bundled == {f"{BUNDLE}/{path.name}" for path in (ROOT / BUNDLE).glob("*")}


def test_the_command_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True, symlinks=True)
    _run(environment / "bin/pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    # The libraries it depends on come from this environment: nothing is downloaded in a test. A folder on PYTHONPATH
    # runs no .pth files, so this checkout itself is not visible.
    libraries = sysconfig.get_path("purelib")
    home = tmp_path / "home"
    settings = {"PYTHONPATH": libraries, "LITHIFY_HOME": str(home), "cwd": str(tmp_path)}
    where = _run(environment / "bin/python", "-c", "import engine; print(engine.__file__)", **settings)
    assert str(environment) in where
    _run(environment / "bin/lithify", "migrate", "--verbosity", "0", **settings)
    assert "No changes detected" in _run(
        environment / "bin/lithify", "makemigrations", "--check", "--dry-run", **settings
    )
