"""The specification and the result of a merge of Prometheus blocks, over JSON and back, and results nobody may send."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from engine.profiles import ulids
from engine.protocol.errors import InvalidMessage
from engine.protocol.tsdb_jobs import BlockFile, TsdbMergeResult, TsdbMergeSpec, TsdbSource, WrittenBlock
from engine.protocol.tsdb_results import read_tsdb_result

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


def test_a_specification_comes_back() -> None:
    assert TsdbMergeSpec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC


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
def test_a_result_that_nobody_may_send_is_refused_by_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        read_tsdb_result(RESULT.to_json() | change)
    assert field in caught.value.field
