"""Read and check the result of a merge of Parquet files from a worker's report, which is untrusted."""

from __future__ import annotations

import re
from collections.abc import Mapping

from engine.lanes.tables.jobs import KIND, ChunkResult, TableMergeResult, WrittenFile
from engine.protocol.errors import InvalidMessage
from engine.protocol.fields import COUNT_MAX, Fields
from engine.protocol.wire import KEY_MAX, NAME_MAX
from engine.storage.keys import check_key
from engine.storage.model import InvalidKey

CHUNKS_MAX = 10_000
FILES_MAX = 100_000
"""Limit of the files of one chunk."""
COLUMNS_MAX = 10_000
TIME_MIN, TIME_MAX = -(1 << 63), (1 << 63) - 1
_SUM = re.compile(r"-?[0-9]{1,100}(\.[0-9]{1,100})?")


def read_table_result(data: object) -> TableMergeResult:
    """Return the checked result. Raises InvalidMessage."""
    fields = Fields.of(data, "result")
    if fields.text("kind", NAME_MAX) != KIND:
        raise fields.error("kind", f"{KIND!r} is expected")
    chunks = tuple(_chunk(chunk) for chunk in fields.objects("chunks", CHUNKS_MAX))
    paths = [file.path for chunk in chunks for file in chunk.outputs]
    if len(set(paths)) != len(paths):
        raise fields.error("chunks", "a file is written twice")
    return TableMergeResult(chunks=chunks)


def table_path(fields: Fields, name: str) -> str:
    """Return the path of a Parquet file below a data source's URL. Raises InvalidMessage."""
    return checked_path(fields.text(name, KEY_MAX, empty=False), f"{fields.path}.{name}")


def checked_path(path: str, where: str) -> str:
    """Return a path that stores accept. Raises InvalidMessage."""
    try:
        return check_key("read", path)
    except InvalidKey as error:
        raise InvalidMessage(where, error.reason) from error


def _chunk(fields: Fields) -> ChunkResult:
    start = fields.integer("start_ms", TIME_MIN, TIME_MAX - 1)
    outputs = tuple(_file(file) for file in fields.objects("outputs", FILES_MAX))
    rows_written = fields.integer("rows_written", 0, COUNT_MAX)
    if sum(file.rows for file in outputs) != rows_written:
        raise fields.error("rows_written", "it differs from the rows of the outputs")
    return ChunkResult(
        start_ms=start,
        end_ms=fields.integer("end_ms", start + 1, TIME_MAX),
        sources=_sources(fields),
        outputs=outputs,
        rows_read=fields.integer("rows_read", 0, COUNT_MAX),
        rows_written=rows_written,
        bytes_read=fields.integer("bytes_read", 0, COUNT_MAX),
        sums=_sums(fields),
    )


def _sources(fields: Fields) -> tuple[str, ...]:
    where = f"{fields.path}.sources"
    paths: list[str] = []
    for path in fields.items("sources", FILES_MAX):
        if not isinstance(path, str) or len(path) > KEY_MAX:
            raise InvalidMessage(where, "paths are expected")
        paths.append(checked_path(path, where))
    if len(set(paths)) != len(paths):
        raise InvalidMessage(where, "a path appears twice")
    return tuple(paths)


def _sums(fields: Fields) -> Mapping[str, str]:
    sums = fields.mapping("sums")
    if len(sums) > COLUMNS_MAX or not all(isinstance(text, str) and _SUM.fullmatch(text) for text in sums.values()):
        raise fields.error("sums", f"at most {COLUMNS_MAX} decimal numbers are expected")
    return sums


def _file(fields: Fields) -> WrittenFile:
    times = [fields.values.get(name) for name in ("min_time_ms", "max_time_ms")]
    is_timeless = times == [None, None]
    low = None if is_timeless else fields.integer("min_time_ms", TIME_MIN, TIME_MAX)
    high = None if low is None else fields.integer("max_time_ms", low, TIME_MAX)
    return WrittenFile(
        path=table_path(fields, "path"),
        size=fields.integer("size", 1, COUNT_MAX),
        crc32c=fields.integer("crc32c", 0, (1 << 32) - 1),
        rows=fields.integer("rows", 1, COUNT_MAX),
        min_time_ms=low,
        max_time_ms=high,
    )
