"""Roll-up: combine rows of equal dimensions and time, per file and then over the sorted rows of all files.

A file that is already rolled up is rolled up from its metrics. Floats are summed in a fixed order, of rows within a
file, then of files, so that equal files give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.core.errors import BadObject, MergeRefused
from engine.formats.parquet.array_parts import one_array
from engine.formats.parquet.errors import SumOverflow
from engine.formats.parquet.footers import Footer
from engine.formats.parquet.schemas import cast_batch, unified_schema
from engine.formats.parquet.times import milliseconds, scale_of
from engine.lanes.tables.jobs import Metric, RollUp
from engine.lanes.tables.merge.conservation import Tally
from engine.lanes.tables.merge.output_files import METADATA_KEY
from engine.lanes.tables.merge.sketches import BadSketch, countable_values, deserialize_sketch, sketch_of, union_of
from engine.lanes.tables.merge.sort_keys import RowOrder
from engine.lanes.tables.specs import read_roll_up
from engine.protocol.errors import InvalidMessage
from engine.protocol.fields import Fields

WHOLE_SAFE = float(1 << 62)
_COMBINED = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}


@dataclass(frozen=True, slots=True)
class RollUpPlan:
    """How the files of one folder of a chunk are rolled up; ``schema`` is that of the rolled-up rows."""

    roll_up: RollUp
    time_column: str
    time_unit: str
    start_ms: int
    schema: pa.Schema

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that any file has a column for."""
        return tuple(metric for metric in self.roll_up.metrics if metric.name in self.schema.names)

    @property
    def order(self) -> tuple[str, ...]:
        """The key columns of rolled-up rows."""
        return (self.time_column, *self.roll_up.dimensions)


def rolled_schema(roll_up: RollUp, time_column: str, footers: Sequence[Footer]) -> pa.Schema:
    """Return the schema of rolled-up rows. Raises SchemaConflict, and MergeRefused for an unsupported column."""
    names = [time_column, *roll_up.dimensions, *(metric.name for metric in roll_up.metrics)]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise MergeRefused(f"the roll-up has a duplicate column {duplicates[0]}")
    schema = unified_schema((footer.path, _projected_schema(roll_up, time_column, footer)) for footer in footers)
    return pa.schema([field for field in schema if not pa.types.is_null(field.type)])


def rolled_before(roll_up: RollUp, footer: Footer) -> bool:
    """Return whether a file is already rolled up. Raises MergeRefused if its roll-up is incompatible with this one."""
    encoded = footer.key_values.get(METADATA_KEY)
    try:
        data = json.loads(encoded) if encoded else {}
        before = Fields.of(data, "lithify").optional("roll_up")
        there = None if before is None else read_roll_up(before)
    except (ValueError, RecursionError, InvalidMessage) as error:
        raise BadObject("footer", footer.start, f"invalid roll-up metadata: {error}", footer.path) from error
    if there is None:
        return False
    known = {metric.name: metric for metric in there.metrics}
    missing = sorted(set(roll_up.dimensions) - set(there.dimensions))
    missing += [metric.name for metric in roll_up.metrics if known.get(metric.name) != metric]
    if missing:
        raise MergeRefused(f"{footer.path} has an incompatible roll-up, without {', '.join(missing)}")
    return True


def roll_up_json(roll_up: RollUp) -> dict[str, Any]:
    """Return the roll-up's description for file footers."""
    return asdict(roll_up)


def rolled_file(tables: Iterable[pa.Table], plan: RollUpPlan, footer: Footer, tally: Tally) -> pa.Table:
    """Return the rows of one file rolled up, unsorted; ``tally`` counts the input rows."""
    before = rolled_before(plan.roll_up, footer)
    rolled: pa.Table | None = None
    for table in tables:
        projected = _projected(table, plan, footer, before)
        tally.add(projected)
        part = _grouped(projected, plan, raw=not before)
        rolled = part if rolled is None else _grouped(pa.concat_tables([rolled, part]), plan, raw=False)
    return plan.schema.empty_table() if rolled is None else rolled


def fold_sorted(tables: Iterable[pa.Table], plan: RollUpPlan, order: RowOrder) -> Iterator[pa.Table]:
    """Combine sorted rows of equal keys; the first of equal rows provides the dimensions."""
    held: pa.Table | None = None
    for table in tables:
        combined = table if held is None else pa.concat_tables([held, table])
        starts = _group_starts(combined, order)
        if not len(starts):
            continue
        # The last group may continue in the next piece.
        last = int(starts[-1])
        held = combined.slice(last)
        if last:
            yield _folded(combined.slice(0, last), starts[:-1], plan)
    if held is not None and held.num_rows:
        yield _folded(held, np.zeros(1, np.int64), plan)


def _projected_schema(roll_up: RollUp, time_column: str, footer: Footer) -> pa.Schema:
    before = rolled_before(roll_up, footer)
    names = footer.schema.names
    fields = [footer.schema.field(name) for name in (time_column, *roll_up.dimensions) if name in names]
    fields += [pa.field(name, pa.null()) for name in roll_up.dimensions if name not in names]
    for metric in roll_up.metrics:
        source = metric.name if before else metric.column
        kind = footer.schema.field(source).type if source in names else pa.null()
        fields.append(pa.field(metric.name, _metric_type(metric, kind, footer.path)))
    return pa.schema(fields)


def _metric_type(metric: Metric, kind: pa.DataType, path: str) -> pa.DataType:
    types = pa.types
    if metric.function == "count":
        return pa.int64()
    if types.is_null(kind):
        return kind
    if metric.function == "distinct":
        return pa.binary()
    if metric.function in ("min", "max"):
        if not types.is_nested(kind):
            return kind
    elif types.is_unsigned_integer(kind):
        return pa.uint64()
    elif types.is_integer(kind):
        return pa.int64()
    elif types.is_floating(kind):
        return pa.float64()
    elif types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    raise MergeRefused(f"{metric.function} of column {metric.column or metric.name}: its type is {kind} in {path}")


def _projected(table: pa.Table, plan: RollUpPlan, footer: Footer, before: bool) -> pa.Table:
    """Return rows of a file with the columns of the roll-up; ``distinct`` metrics still have the raw values."""
    columns, fields = [], []
    for field in plan.schema:
        metric = next((metric for metric in plan.metrics if metric.name == field.name), None)
        source = field.name if metric is None or before else metric.column
        kind = field.type
        if metric is not None and metric.function == "count" and not before:
            column = pa.chunked_array([pa.array(np.ones(table.num_rows, np.int64))])
        elif source not in table.column_names:
            column = pa.chunked_array([pa.nulls(table.num_rows, kind)])
        elif metric is not None and metric.function == "distinct":
            column = table.column(source)
            column = _checked_sketches(column, metric, footer) if before else _countable(column, metric, footer)
            kind = column.type
        else:
            part = pa.table({field.name: table.column(source)})
            column = cast_batch(part, pa.schema([field]), footer.path).column(0)
        if field.name == plan.time_column:
            column = _truncated(column, plan)
        columns.append(column)
        fields.append(pa.field(field.name, kind))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _countable(column: pa.ChunkedArray, metric: Metric, footer: Footer) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    values = countable_values(column)
    if values is None:
        raise MergeRefused(f"distinct of column {metric.column}: its type is {column.type} in {footer.path}")
    return values


def _checked_sketches(column: pa.ChunkedArray, metric: Metric, footer: Footer) -> pa.ChunkedArray:
    for data in column.to_pylist():
        try:
            if data is not None:
                deserialize_sketch(data)
        except BadSketch as error:
            raise BadObject(f"column {metric.name}", -1, str(error), footer.path) from error
    return column.cast(pa.binary())


def _truncated(column: pa.ChunkedArray, plan: RollUpPlan) -> pa.ChunkedArray:
    """Truncate times to the steps of the roll-up, counted from the start of the chunk."""
    step = plan.roll_up.granularity_ms
    multiply, divide = scale_of(column.type, plan.time_unit)
    if step * divide <= multiply:
        return column
    array = one_array(column)
    times = milliseconds(array, plan.time_unit)
    cut = plan.start_ms + (times - plan.start_ms) // step * step
    stored = pa.array(cut * divide // multiply, mask=pc.is_null(array).to_numpy(zero_copy_only=False))
    kind = array.type
    if pa.types.is_date32(kind):
        return pa.chunked_array([stored.cast(pa.int32()).view(kind)])
    return pa.chunked_array([stored.cast(kind) if pa.types.is_integer(kind) else stored.view(kind)])


def _grouped(table: pa.Table, plan: RollUpPlan, *, raw: bool) -> pa.Table:
    """Return one row per time and dimensions, in order of first appearance."""
    names = [name for name in plan.order if name in plan.schema.names]
    aggregations = [(metric.name, _aggregation(metric, raw)) for metric in plan.metrics]
    _check_sums(table, plan, names)
    grouped = table.group_by(names, use_threads=False).aggregate(aggregations)
    columns = {name: grouped.column(name) for name in names}
    for metric in plan.metrics:
        columns[metric.name] = _finished(grouped.column(f"{metric.name}_{_aggregation(metric, raw)}"), metric, raw)
    return cast_batch(pa.table(columns), plan.schema, "rolled-up rows")


def _folded(table: pa.Table, starts: npt.NDArray[np.int64], plan: RollUpPlan) -> pa.Table:
    """Return one row per group of consecutive rows."""
    if len(starts) == table.num_rows:
        return table
    lengths = np.diff(np.append(starts, table.num_rows))
    numbered = table.append_column("\0group", pa.array(np.repeat(np.arange(len(starts)), lengths)))
    _check_sums(numbered, plan, ["\0group"])
    aggregations = [(metric.name, _aggregation(metric, False)) for metric in plan.metrics]
    grouped = numbered.group_by("\0group", use_threads=False).aggregate(aggregations)
    firsts = table.take(pa.array(starts))
    columns = {name: firsts.column(name) for name in plan.order if name in plan.schema.names}
    for metric in plan.metrics:
        columns[metric.name] = _finished(grouped.column(f"{metric.name}_{_aggregation(metric, False)}"), metric, False)
    return cast_batch(pa.table(columns), plan.schema, "rolled-up rows")


def _aggregation(metric: Metric, raw: bool) -> str:
    return _COMBINED.get(metric.function, "distinct" if raw else "list")


def _finished(column: pa.ChunkedArray, metric: Metric, raw: bool) -> pa.ChunkedArray:
    """Return a column of results; values or sketches of each group become one sketch."""
    if metric.function != "distinct":
        return column
    make = sketch_of if raw else _one_sketch
    return pa.chunked_array([pa.array([make(values) for values in column.to_pylist()], pa.binary())])


def _one_sketch(sketches: Sequence[bytes | None]) -> bytes:
    """Return the union of a group's sketches; a single sketch is returned unchanged."""
    return sketches[0] if len(sketches) == 1 and sketches[0] is not None else union_of(sketches)


def _check_sums(table: pa.Table, plan: RollUpPlan, names: Sequence[str]) -> None:
    """Raise SumOverflow for integer sums beyond 64 bits, which Arrow would wrap around."""
    for metric in plan.metrics:
        kind = table.schema.field(metric.name).type
        if _COMBINED.get(metric.function) != "sum" or not pa.types.is_integer(kind) or not table.num_rows:
            continue
        column = table.column(metric.name)
        bounds = [bound for bound in pc.min_max(column).as_py().values() if bound is not None]
        if max(map(abs, bounds), default=0) * table.num_rows < WHOLE_SAFE:
            continue
        exact = table.select(names).append_column("\0sum", column.cast(pa.float64(), safe=False))
        sums = pc.abs(exact.group_by(list(names), use_threads=False).aggregate([("\0sum", "sum")]).column("\0sum_sum"))
        edge = (1 << 64) if pa.types.is_unsigned_integer(kind) else 1 << 63
        if (pc.max(sums).as_py() or 0.0) >= edge * (1 - 1e-9):
            raise SumOverflow(f"the sum of column {metric.column or metric.name} does not fit {kind}")


def _group_starts(table: pa.Table, order: RowOrder) -> npt.NDArray[np.int64]:
    """Return the first row of each run of equal keys."""
    keys = order.keys(table)
    if not len(keys):
        return np.zeros(0, np.int64)
    differs = keys.heads[1:] != keys.heads[:-1]
    if len(keys.offsets):
        for row in np.flatnonzero(~differs).tolist():
            differs[row] = keys.key(row) != keys.key(row + 1)
    return np.append(0, np.flatnonzero(differs) + 1)
