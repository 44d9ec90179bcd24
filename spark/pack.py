"""Packs the environment of remote Spark executors into one archive (``./dev pack``, ``python -m spark.pack``).

The archive holds ``site-packages/`` (our code with its compiled kernels, and the libraries the merges import) and
``bin/python``, a launcher that starts the executor machine's own Python of the same version with them. Spark ships the
archive to each executor and unpacks it there. PySpark is not in it, because it is part of the Spark of the executor.

The bytes are reproducible: the same environment gives the same archive.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import importlib.util
import io
import os
import re
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from engine.core.version import VERSION

OWN_PACKAGES = ("engine", "spark")
LIBRARIES = (
    *("boto3", "datasketches", "google-crc32c", "httpx", "numpy", "pandas", "protobuf", "pyarrow", "xxhash"),
    *("pydantic-settings", "zstandard"),
)
"""Libraries that the engine and the Arrow functions of PySpark import on an executor, and the data source on a driver
that runs from the archive. Their requirements are added."""
LEFT_OUT_FOLDERS = frozenset({"__pycache__", "tests", "test", "include", "proto_src"})
LEFT_OUT_SUFFIXES = frozenset({".a", ".c", ".h", ".hpp", ".pyc", ".pxd", ".pxi", ".pyx", ".pyi"})
LEFT_OUT_DATA = re.compile(r"^botocore/data/(?!s3/|sts/|sso|[^/]+$)")
"""Data files of AWS services that no merge uses; they are large."""
COMPRESSION_LEVEL = 1
"""Lowest level: the archive is unpacked on every executor, and speed matters more than size."""

LAUNCHER = """#!/bin/sh
# Starts this machine's Python {python} with the packages beside this file, after those of Spark itself.
here=$(cd "$(dirname "$0")/.." && pwd)
python=${{LITHIFY_EXECUTOR_PYTHON:-python{python}}}
command -v "$python" >/dev/null || {{
    echo "lithify: no $python on this executor; install it or set LITHIFY_EXECUTOR_PYTHON" >&2
    exit 127
}}
PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$here/site-packages"
export PYTHONPATH
exec "$python" "$@"
"""


def pack(target: Path) -> Path:
    """Write the archive to ``target`` (by rename, so that it is never partial) and return the path."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with (
            unfinished.open("wb") as file,
            gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=COMPRESSION_LEVEL, mtime=0) as stream,
            tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            _add(archive, "bin/python", _launcher(), mode=0o755)
            for name, path in sorted(_contents().items()):
                _add(archive, f"site-packages/{name}", path.read_bytes(), mode=0o644)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def default_name() -> str:
    """Return the file name of the archive, with release, Python version and platform."""
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return f"lithify-{VERSION}-{python}-{sysconfig.get_platform()}.tar.gz"


def distributions() -> list[str]:
    """Return the names of LIBRARIES and of their installed requirements, recursively."""
    found: set[str] = set()
    waiting = list(LIBRARIES)
    while waiting:
        name = _canonical(waiting.pop())
        if name in found:
            continue
        try:
            requirements = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            if name in map(_canonical, LIBRARIES):
                raise
            continue  # required on other platforms only
        found.add(name)
        waiting += [
            re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0] for text in requirements if "extra ==" not in text
        ]
    return sorted(found)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _launcher() -> bytes:
    return LAUNCHER.format(python=f"{sys.version_info.major}.{sys.version_info.minor}").encode()


def _contents() -> dict[str, Path]:
    """Return the files to pack by their name in site-packages."""
    files = {}
    for name in distributions():
        for file in importlib.metadata.files(name) or []:
            if file.parts[0] != ".." and _is_wanted(file):
                files[file.as_posix()] = Path(str(file.locate()))
    for package in OWN_PACKAGES:
        files |= dict(_own_files(package))
    return {name: path for name, path in files.items() if path.is_file()}


def _own_files(package: str) -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec(package)
    root = Path(spec.origin).parent if spec and spec.origin else None
    assert root, f"{package} is not importable"
    for path in root.rglob("*"):
        name = PurePosixPath(package, path.relative_to(root).as_posix())
        if path.is_file() and _is_wanted(name):
            yield str(name), path


def _is_wanted(name: PurePosixPath) -> bool:
    return (
        LEFT_OUT_FOLDERS.isdisjoint(name.parts[:-1])
        and name.suffix not in LEFT_OUT_SUFFIXES
        and not LEFT_OUT_DATA.search(str(name))
    )


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def main(arguments: list[str] | None = None) -> None:
    """Write the archive and print how to use it."""
    parser = argparse.ArgumentParser(prog="python -m spark.pack", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=Path("dist") / default_name())
    target = pack(parser.parse_args(arguments).file)
    print(f"{target}: {target.stat().st_size >> 20} MiB")
    print(f"Set SPARK_ARCHIVE={target.resolve()} for nodes whose SPARK_MASTER is on other machines.")


if __name__ == "__main__":
    main()
