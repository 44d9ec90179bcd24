"""A bucket of real blocks, adopted by the command, is merged by a real node to the end: Prometheus serves the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.formats.prometheus.meta import decode_meta
from engine.storage import ObjectStore, open_store
from tests import tsdb_blocks
from tests.e2e.stack import Stack
from tests.engine.lanes.tsdb.conftest import RealBlocks, all_real_blocks
from tests.interop.prometheus import PROGRAM, serving
from tests.processes import Processes
from tests.webadmin.lanes.tsdb.fake_bucket import visible
from tests.webadmin.lanes.tsdb.test_real_buckets import put

__all__ = ["all_real_blocks"]

pytestmark = [
    pytest.mark.foreign_data,
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.xdist_group("stack"),
    pytest.mark.skipif(not shutil.which(PROGRAM), reason="no prometheus: ./dev test takes it out of its package"),
]
ARCHIVE = "five-intervals"
JOBS = "SELECT job.state, job.failures FROM schedule_job job JOIN tsdb_part part ON part.job_id = job.id"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Processes() as processes:
        stack = Stack(tmp_path_factory.mktemp("stack"), processes)
        stack.start_node()
        yield stack
        stack.close()


@pytest.fixture(scope="module")
def before(all_real_blocks: dict[str, RealBlocks], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What Prometheus serves of the blocks as they were written."""
    return served(all_real_blocks[ARCHIVE].folders(), tmp_path_factory.mktemp("before"))


def served(blocks: list[Path], home: Path) -> Any:
    metas = [decode_meta((block / "meta.json").read_bytes()) for block in blocks]
    start_ms, end_ms = min(meta.min_time_ms for meta in metas), max(meta.max_time_ms for meta in metas)
    with serving(blocks, home) as prometheus:
        return start_ms, end_ms, prometheus.samples(start_ms - 1, end_ms), prometheus.steps(start_ms, end_ms, 20)


def uploaded(layout: str, sources: list[Path], store: ObjectStore, copies: Path) -> str:
    """Put blocks into a bucket as their writers would; return the folder they lie in."""
    folder = "acme/" if layout == "cortex" else ""
    for source in sources:
        labels = {"cluster": "eu", "replica": source.name[-2:]} if layout == "thanos" else None
        put(store, folder, shutil.copytree(source, copies / source.name), labels)
    return folder


@pytest.mark.parametrize("layout", ["cortex", "thanos"])
def test_an_adopted_bucket_is_merged_to_the_end_and_served_as_before(
    stack: Stack, all_real_blocks: dict[str, RealBlocks], before: Any, tmp_path: Path, layout: str
) -> None:
    store = open_store(f"file://{tmp_path}/bucket")
    sources = all_real_blocks[ARCHIVE].folders()
    folder = uploaded(layout, sources, store, tmp_path / "copies")
    replicas = ("--replica-labels", "replica") if layout == "thanos" else ()
    said = stack.manage(
        *("tsdb", "adopt", store.url, "--layout", layout, "--name", layout, "--wait"),
        *("--consistency-delay-seconds", "0", *replicas),
    )
    assert "caught up" in said
    left = visible(store, folder)
    assert len(left) == 1
    assert not left & {source.name for source in sources}
    assert set(stack.rows(JOBS)) == {("done", 0)}
    results = [
        tsdb_blocks.download(store, ulid, store.get(f"{folder}{ulid}/meta.json"), tmp_path / "results", folder)
        for ulid in left
    ]
    (tmp_path / "after").mkdir()
    assert served(results, tmp_path / "after") == before
