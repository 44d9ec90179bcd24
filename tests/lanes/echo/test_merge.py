"""The merge in one process and on Spark: the same bytes, the same errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import BadObject
from engine.settings.base import BadSetting
from engine.settings.lanes import lane_manifests
from engine.storage import ObjectStore, open_store
from tasks.engine_merger import EngineMerger
from tasks.merger import Merger
from tasks.spark_merger import SparkMerger
from tasks.specs import LONG_JOB_BYTES, takes_long
from tests.lanes.echo.engine.jobs import EchoSpec, Text

GOOD = ("one\n", "zw\N{LATIN SMALL LETTER O WITH DIAERESIS}lf\n", "")


def specs(store: ObjectStore) -> dict[str, dict[str, Any]]:
    """Return a job whose sources are text, and one with a source that is not."""
    texts = []
    for number, content in enumerate([*GOOD, b"ab\xff"]):
        data = content if isinstance(content, bytes) else content.encode()
        store.put(f"texts/{number}", data)
        texts.append(Text(f"texts/{number}", len(data)))
    jobs = {"good": texts[:-1], "bad": texts}
    return {
        job: EchoSpec(job=job, tenant="acme", folder="notes", sources=tuple(sources), fence=7).to_json()
        for job, sources in jobs.items()
    }


def check(merger: Merger, folder: Path) -> None:
    store = open_store(f"file://{folder}")
    merger.start()
    try:
        outcomes = merger.merge("batch", specs(store), cancelled=lambda job: False, progress=lambda *report: None)
    finally:
        merger.stop()
    data = "".join(GOOD).encode()
    assert store.get("echo/acme/notes/good-7") == data
    assert outcomes["good"] == {"kind": "echo", "blocks": [{"key": "echo/acme/notes/good-7", "size": len(data)}]}
    error = outcomes["bad"]
    assert isinstance(error, BadObject)
    assert (error.object_name, error.section, error.offset) == ("texts/3", "text", 2)
    assert [info.key for info in store.list("echo/")] == ["echo/acme/notes/good-7"]


@pytest.mark.usefixtures("with_echo")
def test_a_node_without_spark_concatenates_and_names_the_bad_source(tmp_path: Path) -> None:
    check(EngineMerger(f"file://{tmp_path}/objects", tmp_path), tmp_path / "objects")


@pytest.mark.spark
@pytest.mark.usefixtures("with_echo")
def test_spark_writes_the_same_bytes_and_returns_the_same_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_MASTER", "local[2]")
    check(SparkMerger(f"file://{tmp_path}/objects", tmp_path), tmp_path / "objects")


@pytest.mark.usefixtures("with_echo")
def test_a_large_job_has_a_batch_of_its_own() -> None:
    large = EchoSpec(job="a", tenant="", folder="", sources=(Text("x", LONG_JOB_BYTES + 1),), fence=1).to_json()
    assert takes_long(large)
    assert not takes_long(large | {"sources": [{"key": "x", "size": 1}]})
    assert not takes_long(large | {"sources": None})


@pytest.mark.parametrize("lane", ["echo", "tests.lanes.gone"])
def test_a_lane_that_is_not_installed_is_named(lane: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITHIFY_LANES", lane)
    with pytest.raises(BadSetting, match=f"LITHIFY_LANES names '{lane}'"):
        lane_manifests("engine")
