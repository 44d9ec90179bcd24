"""The specification and the result of a merge of Prometheus blocks, over JSON and back, and invalid results."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.core import ulids
from engine.lanes.tsdb.jobs import BlockFile, TsdbMergeResult, TsdbMergeSpec, TsdbSource, WrittenBlock
from engine.lanes.tsdb.results import read_tsdb_result
from engine.lanes.tsdb.specs import read_tsdb_spec
from engine.protocol.errors import InvalidMessage

FIRST, SECOND = (ulids.make(1_700_000_000_000 + number, bytes(10)) for number in range(2))
FILES = (BlockFile(name="index", size=9, crc32c=1), BlockFile(name="chunks/000001", size=8, crc32c=2))
SPEC = TsdbMergeSpec(
    job="tsdb/a",
    tenant="a",
    level=1,
    bucket_url="s3://metrics",
    layout="cortex",
    folder="a/",
    range_start_ms=-7_200_000,
    range_end_ms=0,
    sources=tuple(
        TsdbSource(id=one, level=1, files=(BlockFile(name="index", size=3),), meta=b"{}\xff") for one in (FIRST, SECOND)
    ),
    partition=1,
    partitions=2,
    thanos={"labels": {"region": "x"}},
    fence=7,
)
RESULT = TsdbMergeResult(
    sources=(FIRST, SECOND), block=WrittenBlock(id=SECOND, files=FILES, meta=b"{}"), samples_read=5, bytes_read=6
)


@pytest.mark.parametrize("read", [TsdbMergeSpec.from_json, read_tsdb_spec])
@pytest.mark.parametrize("spec", [SPEC, replace(SPEC, folder="", thanos=None, fence=None)])
def test_a_specification_comes_back(read: Callable[[dict[str, Any]], TsdbMergeSpec], spec: TsdbMergeSpec) -> None:
    assert read(json.loads(json.dumps(spec.to_json()))) == spec


def with_source(**change: object) -> dict[str, Any]:
    return {"sources": [SPEC.to_json()["sources"][0] | change]}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "profiles"}, "kind"),
        ({"job": ""}, "job"),
        ({"level": "1"}, "level"),
        ({"bucket_url": ""}, "bucket_url"),
        ({"layout": "other"}, "layout"),
        ({"folder": "a"}, "folder"),
        ({"folder": "../a/"}, "folder"),
        ({"folder": "/"}, "folder"),
        ({"range_end_ms": SPEC.range_start_ms}, "range_end_ms"),
        ({"partition": 2}, "partition"),
        ({"partitions": 0}, "partitions"),
        ({"winner": "whoever"}, "winner"),
        ({"thanos": []}, "thanos"),
        ({"fence": -1}, "fence"),
        ({"task_memory_bytes": 0}, "task_memory_bytes"),
        ({"sources": []}, "sources"),
        ({"sources": [{}]}, "sources[0].id"),
        ({"sources": SPEC.to_json()["sources"][:1] * 2}, "sources"),
        (with_source(id="../../../../etc/passwd00000"), "id"),
        (with_source(level=1 << 32), "level"),
        (with_source(meta="no base64!"), "meta"),
        (with_source(files=[{"name": "../index", "size": 1}]), "name"),
        (with_source(files=[{"name": "meta.json", "size": 1}]), "name"),
        (with_source(files=[{"name": "index", "size": -1}]), "size"),
        (with_source(files=[{"name": "index", "size": 1, "crc32c": 1 << 32}]), "crc32c"),
        (with_source(files=[{"name": "index", "size": 1}] * 2), "files"),
    ],
)
def test_an_invalid_specification_is_refused_by_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        read_tsdb_spec(SPEC.to_json() | change)
    assert field in caught.value.field


@pytest.mark.parametrize("result", [RESULT, replace(RESULT, block=None)])
def test_a_result_comes_back(result: TsdbMergeResult) -> None:
    assert read_tsdb_result(json.loads(json.dumps(result.to_json()))) == result


def test_the_result_is_named_after_sources_partition_and_token() -> None:
    names = {
        SPEC.result_id(),
        replace(SPEC, partition=0).result_id(),
        replace(SPEC, fence=8).result_id(),
        replace(SPEC, sources=SPEC.sources[:1]).result_id(),
    }
    assert len(names) == 4
    assert SPEC.result_id() == replace(SPEC, job="other", task_memory_bytes=1).result_id()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "profiles"}, "result.kind"),
        ({"sources": ["short"]}, "result.sources"),
        ({"blocks": [RESULT.to_json()["blocks"][0]] * 2}, "result.blocks"),
        ({"blocks": [{"id": SECOND, "files": [], "meta": ""}]}, "files"),
        ({"blocks": [{"id": SECOND, "files": [{"name": "../../x", "size": 1, "crc32c": 1}], "meta": ""}]}, "name"),
        ({"blocks": [{"id": SECOND, "files": [{"name": "meta.json", "size": 1, "crc32c": 1}], "meta": ""}]}, "name"),
        ({"blocks": [{"id": SECOND, "files": [{"name": "index", "size": 1, "crc32c": 1}] * 2, "meta": ""}]}, "files"),
        ({"blocks": [{"id": SECOND, "files": [{"name": "index", "size": -1, "crc32c": 1}], "meta": ""}]}, "size"),
        ({"samples_read": -1}, "result.samples_read"),
        ({"bytes_read": True}, "result.bytes_read"),
    ],
)
def test_an_invalid_result_is_refused_by_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        read_tsdb_result(RESULT.to_json() | change)
    assert field in caught.value.field
