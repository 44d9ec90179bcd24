"""The archive has what a merge imports, and its launcher starts a bare Python that can import it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from spark import pack

PROGRAM = """
import engine, boto3, pyarrow.parquet, engine.core.kernels, spark.probe
from pathlib import Path
print(Path(engine.__file__).parents[1])
print(engine.core.kernels.implementation_of("engine.formats.profile_block.series._series_index"))
"""


def test_a_bare_python_runs_from_the_unpacked_archive(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "lithify", filter="data")
    # The base interpreter, without this environment's packages and away from this checkout; it has no pyspark, which on
    # an executor comes from Spark itself.
    pyspark = str(Path(__import__("pyspark").__file__).parents[1])
    environment = {"PATH": os.environ["PATH"], "LITHIFY_EXECUTOR_PYTHON": sys._base_executable}
    (tmp_path / "spark-home").mkdir()
    for name in ("pyspark", "py4j"):
        (tmp_path / "spark-home" / name).symlink_to(f"{pyspark}/{name}")
    answer = subprocess.run(
        [tmp_path / "lithify/bin/python", "-c", PROGRAM],
        env=environment | {"PYTHONPATH": str(tmp_path / "spark-home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stderr == ""
    from engine.core.kernels import implementation_of

    assert answer.stdout.split() == [
        str(tmp_path / "lithify/site-packages"),
        implementation_of("engine.formats.profile_block.series._series_index"),
    ]


def test_a_missing_python_is_named(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extract("bin/python", tmp_path, filter="data")
    answer = subprocess.run(
        [tmp_path / "bin/python"], env={"PATH": "/usr/bin:/bin", "LITHIFY_EXECUTOR_PYTHON": "no-python"}, stderr=-1
    )
    assert answer.returncode == 127
    assert b"no no-python on this executor" in answer.stderr


def test_two_packs_of_the_same_files_are_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"b.py": tmp_path / "b", "a/c.so": tmp_path / "c"}
    archives = []
    for number, contents in enumerate([files, dict(reversed(files.items()))]):
        for path in files.values():
            path.write_text(path.name)
            os.utime(path, (number, number))
        monkeypatch.setattr(pack, "_contents", lambda contents=contents: contents)
        archives.append(pack.pack(tmp_path / f"out/{number}.tar.gz").read_bytes())
    assert archives[0] == archives[1]
    # Nothing unfinished is left beside them.
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0.tar.gz", "1.tar.gz"]


def test_the_archive_holds_no_tests_and_no_sources_of_kernels(archive: Path) -> None:
    with tarfile.open(archive) as opened:
        names = opened.getnames()
    assert not [name for name in names if "/tests/" in name or name.endswith((".pyx", ".c", ".pyc"))]
    assert not [name for name in names if name.startswith("site-packages/pyspark")]
    assert {"bin/python", "site-packages/engine/storage/s3.py", "site-packages/spark/probe.py"} <= set(names)
