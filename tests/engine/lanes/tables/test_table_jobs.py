"""The specification and the result of a merge of Parquet files, over JSON and back, and invalid results."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.core import ulids
from engine.lanes.tables.jobs import (
    ChunkResult,
    Metric,
    RollUp,
    TableChunk,
    TableFile,
    TableMergeResult,
    TableMergeSpec,
    WrittenFile,
)
from engine.lanes.tables.results import read_table_result
from engine.lanes.tables.specs import read_table_spec
from engine.protocol.errors import InvalidMessage

HOUR = 3_600_000
FILES = (
    TableFile(path="region=eu/b.parquet", size=10, rows=2),
    TableFile(path="region=eu/a.parquet", size=10, rows=2, whole=False),
    TableFile(path="a.parquet", size=10, rows=0),
)
CHUNK = TableChunk(start_ms=-HOUR, end_ms=0, files=FILES)
ROLL_UP = RollUp(
    dimensions=("region",),
    metrics=(
        Metric(name="bytes", function="sum", column="bytes"),
        Metric(name="rows", function="count"),
        Metric(name="users", function="distinct", column="user"),
    ),
    granularity_ms=60_000,
)
SPEC = TableMergeSpec(
    job="tables/a",
    tenant="a",
    source="requests",
    url="s3://lake/requests",
    chunks=(CHUNK, TableChunk(start_ms=0, end_ms=HOUR, files=FILES[1:2])),
    time_column="at",
    time_unit="us",
    sort_columns=("region", "at"),
    roll_up=ROLL_UP,
    fence=7,
)
OUTPUT = WrittenFile(path="lithify-x.parquet", size=9, crc32c=1, rows=3, min_time_ms=-5, max_time_ms=-5)
RESULT = TableMergeResult(
    chunks=(
        ChunkResult(
            start_ms=-HOUR,
            end_ms=0,
            sources=("a.parquet",),
            outputs=(OUTPUT, replace(OUTPUT, path="y.parquet", min_time_ms=None, max_time_ms=None)),
            rows_read=7,
            rows_written=6,
            bytes_read=12,
            sums={"bytes": "-12345678901234567890123", "price": "1.50"},
        ),
    )
)


@pytest.mark.parametrize("read", [TableMergeSpec.from_json, read_table_spec])
@pytest.mark.parametrize("spec", [SPEC, replace(SPEC, roll_up=None, sort_columns=(), time_unit="", fence=None)])
def test_a_specification_comes_back(read: Callable[[dict[str, Any]], TableMergeSpec], spec: TableMergeSpec) -> None:
    assert read(json.loads(json.dumps(spec.to_json()))) == spec


def with_chunk(**change: object) -> dict[str, Any]:
    return {"chunks": [SPEC.to_json()["chunks"][0] | change]}


def with_file(**change: object) -> dict[str, Any]:
    return with_chunk(files=[{"path": "a.parquet", "size": 1, "rows": 1} | change])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "tsdb"}, "kind"),
        ({"job": ""}, "job"),
        ({"source": ""}, "source"),
        ({"url": ""}, "url"),
        ({"time_column": ""}, "time_column"),
        ({"time_unit": "weeks"}, "time_unit"),
        ({"sort_columns": ["a", "a"]}, "sort_columns"),
        ({"sort_columns": [1]}, "sort_columns"),
        ({"target_bytes": 0}, "target_bytes"),
        ({"target_rows": -1}, "target_rows"),
        ({"task_memory_bytes": 0}, "task_memory_bytes"),
        ({"fence": -1}, "fence"),
        ({"chunks": []}, "chunks"),
        ({"chunks": SPEC.to_json()["chunks"][::-1]}, "chunks"),
        (with_chunk(end_ms=-HOUR), "end_ms"),
        (with_chunk(start_ms=True), "start_ms"),
        (with_chunk(files=[]), "files"),
        (with_chunk(files=SPEC.to_json()["chunks"][0]["files"][:1] * 2), "files"),
        (with_file(path="../a.parquet"), "path"),
        (with_file(path="/a.parquet"), "path"),
        (with_file(path=""), "path"),
        (with_file(size=0), "size"),
        (with_file(rows=-1), "rows"),
        (with_file(whole=1), "whole"),
        ({"roll_up": []}, "roll_up"),
        ({"roll_up": {"dimensions": [], "metrics": [{"name": "x", "function": "mode", "column": "x"}]}}, "function"),
        ({"roll_up": {"dimensions": [], "metrics": [{"name": "x", "function": "count", "column": "x"}]}}, "column"),
        ({"roll_up": {"dimensions": [], "metrics": [{"name": "x", "function": "sum"}]}}, "column"),
        ({"roll_up": {"dimensions": ["x"], "metrics": [{"name": "x", "function": "count"}]}}, "metrics"),
        ({"roll_up": {"dimensions": ["x"], "metrics": [], "granularity_ms": -1}}, "granularity_ms"),
    ],
)
def test_an_invalid_specification_is_refused_by_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        read_table_spec(SPEC.to_json() | change)
    assert field in caught.value.field


def test_files_of_a_chunk_go_together_by_folder() -> None:
    assert CHUNK.folders() == {"": [FILES[2]], "region=eu": [FILES[0], FILES[1]]}


def test_an_output_is_named_after_job_token_chunk_folder_and_number() -> None:
    other = replace(CHUNK, start_ms=-2 * HOUR)
    names = {
        SPEC.output_path(CHUNK, "", 0),
        SPEC.output_path(CHUNK, "", 1),
        SPEC.output_path(other, "", 0),
        replace(SPEC, fence=8).output_path(CHUNK, "", 0),
        replace(SPEC, job="tables/b").output_path(CHUNK, "", 0),
    }
    assert len(names) == 5
    path = SPEC.output_path(CHUNK, "dt=1/region=eu", 0)
    assert path.startswith("dt=1/region=eu/lithify-")
    assert ulids.time_ms(path.removeprefix("dt=1/region=eu/lithify-").removesuffix(".parquet")) == 0
    assert path == replace(SPEC, task_memory_bytes=1).output_path(CHUNK, "dt=1/region=eu", 0)


def test_a_result_comes_back() -> None:
    assert read_table_result(json.loads(json.dumps(RESULT.to_json()))) == RESULT
    assert RESULT.chunks[0].bytes_written == 18
    assert RESULT.to_log() == [{"path": "lithify-x.parquet", "size": 9}, {"path": "y.parquet", "size": 9}]


def in_chunk(**change: object) -> dict[str, Any]:
    return {"chunks": [RESULT.to_json()["chunks"][0] | change]}


def in_output(**change: object) -> dict[str, Any]:
    output = RESULT.to_json()["chunks"][0]["outputs"][0] | change
    return in_chunk(outputs=[output], rows_written=output["rows"])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "tsdb"}, "result.kind"),
        ({"chunks": {}}, "result.chunks"),
        ({"chunks": RESULT.to_json()["chunks"] * 2}, "result.chunks"),
        (in_chunk(end_ms=-HOUR), "end_ms"),
        (in_chunk(rows_written=7), "rows_written"),
        (in_chunk(rows_read=-1), "rows_read"),
        (in_chunk(sources=["a", "a"]), "sources"),
        (in_chunk(sources=["../a"]), "sources"),
        (in_chunk(sources=[7]), "sources"),
        (in_chunk(sums={"bytes": "1e9"}), "sums"),
        (in_chunk(sums={"bytes": 1}), "sums"),
        (in_output(path="a/../b"), "path"),
        (in_output(size=0), "size"),
        (in_output(rows=0), "rows"),
        (in_output(crc32c=1 << 32), "crc32c"),
        (in_output(min_time_ms=None), "min_time_ms"),
        (in_output(max_time_ms=-6), "max_time_ms"),
    ],
)
def test_an_invalid_result_is_refused_by_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        read_table_result(RESULT.to_json() | change)
    assert field in caught.value.field
