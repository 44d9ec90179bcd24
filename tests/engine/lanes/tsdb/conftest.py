"""Fixtures of the tests of Prometheus blocks: the real ones with what is known of them."""

from __future__ import annotations

import importlib
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from engine.lanes.tsdb.merge import merge


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """What is written here need not outlive the machine; examples by the hundred would wait for the disk."""
    with mock.patch("os.fsync"):
        yield


ARCHIVES = (
    "conflicting-values",
    "five-intervals",
    "replicas-two-intervals",
    "stale-and-histograms",
    "three-replicas",
    "tombstones",
)


@dataclass(frozen=True)
class RealBlocks:
    """The blocks of one archive, unpacked, and the answers known about each."""

    folder: Path
    answers: list[dict[str, Any]]
    results: list[dict[str, Any]]
    """What Prometheus made of them."""

    def folders(self) -> list[Path]:
        return [self.folder / answer["ulid"] for answer in self.answers]


@pytest.fixture(scope="session")
def all_real_blocks(foreign_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RealBlocks]:
    """Every archive by name; tests that use it are marked ``foreign_data``."""
    root = tmp_path_factory.mktemp("tsdb")
    known = json.loads((foreign_data / "tsdb" / "known-answers.json").read_text())
    for archive in ARCHIVES:
        with tarfile.open(foreign_data / "tsdb" / f"{archive}.tar.gz") as packed:
            packed.extractall(root, filter="data")
    return {
        archive: RealBlocks(root / archive, known[archive]["inputs"], known[archive]["results"]) for archive in ARCHIVES
    }


@pytest.fixture(params=ARCHIVES)
def real_blocks(request: pytest.FixtureRequest, all_real_blocks: dict[str, RealBlocks]) -> RealBlocks:
    """The blocks of each archive in turn."""
    return all_real_blocks[request.param]


@pytest.fixture(params=["_series_merge_py", "_series_merge"])
def each_series_merge(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merges of blocks by the twin and, where it is built, by the compiled merge of series."""
    try:
        module = importlib.import_module(f"engine.lanes.tsdb.merge.{request.param}")
    except ModuleNotFoundError:
        pytest.skip("the kernels are not built")
    monkeypatch.setattr(merge, "SeriesMerge", module.SeriesMerge)
