"""Read and check the specification of a merge of Parquet files on the worker, where paths become objects."""

from __future__ import annotations

import itertools

from engine.lanes.tables.jobs import (
    FUNCTIONS,
    KIND,
    TIME_UNITS,
    Metric,
    RollUp,
    TableChunk,
    TableFile,
    TableMergeSpec,
)
from engine.lanes.tables.results import CHUNKS_MAX, COLUMNS_MAX, FILES_MAX, TIME_MAX, TIME_MIN, table_path
from engine.protocol.errors import InvalidMessage
from engine.protocol.fields import COUNT_MAX, Fields
from engine.protocol.wire import JOB_NAME_MAX, KEY_MAX, NAME_MAX

URL_MAX = 4096
COLUMN_NAME_MAX = 1024
SORT_COLUMNS_MAX = 100


def read_table_spec(data: object) -> TableMergeSpec:
    """Return the checked specification. Raises InvalidMessage."""
    fields = Fields.of(data, "spec")
    if fields.text("kind", NAME_MAX) != KIND:
        raise fields.error("kind", f"{KIND!r} is expected")
    chunks = tuple(_chunk(chunk) for chunk in fields.objects("chunks", CHUNKS_MAX))
    if not chunks:
        raise fields.error("chunks", "at least one is expected")
    for before, after in itertools.pairwise(chunks):
        if after.start_ms < before.end_ms:
            raise fields.error("chunks", "chunks in time order without overlap are expected")
    roll_up = fields.optional("roll_up")
    return TableMergeSpec(
        job=fields.text("job", JOB_NAME_MAX, empty=False),
        tenant=fields.text("tenant", KEY_MAX),
        source=fields.text("source", NAME_MAX, empty=False),
        url=fields.text("url", URL_MAX, empty=False),
        chunks=chunks,
        time_column=fields.text("time_column", COLUMN_NAME_MAX, empty=False),
        time_unit=fields.choice("time_unit", TIME_UNITS),
        sort_columns=_names(fields, "sort_columns", SORT_COLUMNS_MAX),
        roll_up=None if roll_up is None else read_roll_up(roll_up),
        target_bytes=fields.integer("target_bytes", 1, COUNT_MAX),
        target_rows=fields.integer("target_rows", 0, COUNT_MAX),
        fence=fields.integer("fence", 0, COUNT_MAX) if fields.values.get("fence") is not None else None,
        task_memory_bytes=fields.integer("task_memory_bytes", 1, COUNT_MAX),
    )


def read_roll_up(fields: Fields) -> RollUp:
    """Return a checked roll-up, of a specification or a policy. Raises InvalidMessage."""
    dimensions = _names(fields, "dimensions", COLUMNS_MAX)
    metrics = tuple(_metric(metric) for metric in fields.objects("metrics", COLUMNS_MAX))
    names = [*dimensions, *(metric.name for metric in metrics)]
    if len(set(names)) != len(names):
        raise fields.error("metrics", "two columns would have one name")
    return RollUp(
        dimensions=dimensions, metrics=metrics, granularity_ms=fields.integer("granularity_ms", 0, COUNT_MAX, default=0)
    )


def _metric(fields: Fields) -> Metric:
    function = fields.choice("function", FUNCTIONS)
    column = fields.text("column", COLUMN_NAME_MAX, default="")
    if bool(column) == (function == "count"):
        raise fields.error("column", "a column is expected for every function but count")
    return Metric(name=fields.text("name", COLUMN_NAME_MAX, empty=False), function=function, column=column)


def _names(fields: Fields, name: str, count_max: int) -> tuple[str, ...]:
    where = f"{fields.path}.{name}"
    names = fields.items(name, count_max, default=())
    if not all(isinstance(one, str) and 0 < len(one) <= COLUMN_NAME_MAX for one in names):
        raise InvalidMessage(where, "column names are expected")
    if len(set(names)) != len(names):
        raise InvalidMessage(where, "a column appears twice")
    return tuple(names)


def _chunk(fields: Fields) -> TableChunk:
    start = fields.integer("start_ms", TIME_MIN, TIME_MAX - 1)
    files = tuple(_file(file) for file in fields.objects("files", FILES_MAX))
    if not files:
        raise fields.error("files", "at least one is expected")
    if len({file.path for file in files}) != len(files):
        raise fields.error("files", "a file appears twice")
    return TableChunk(start_ms=start, end_ms=fields.integer("end_ms", start + 1, TIME_MAX), files=files)


def _file(fields: Fields) -> TableFile:
    whole = fields.values.get("whole", True)
    if not isinstance(whole, bool):
        raise fields.error("whole", "true or false is expected")
    return TableFile(
        path=table_path(fields, "path"),
        size=fields.integer("size", 1, COUNT_MAX),
        rows=fields.integer("rows", 0, COUNT_MAX),
        whole=whole,
    )
