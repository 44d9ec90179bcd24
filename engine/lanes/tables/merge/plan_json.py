"""The plan of a folder as JSON, for tasks that read or write its rows elsewhere."""

from __future__ import annotations

import base64
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from engine.lanes.tables.jobs import TableMergeSpec
from engine.lanes.tables.merge.folder_plan import FolderPlan, SourceTotals
from engine.lanes.tables.merge.rolling import RollUpPlan
from engine.lanes.tables.merge.sort_keys import row_order


def plan_to_json(plan: FolderPlan) -> dict[str, Any]:
    """Return a plan; its specification is of this one chunk."""
    return {
        "spec": replace(plan.spec, chunks=(plan.chunk,)).to_json(),
        "folder": plan.folder,
        "schema": base64.b64encode(plan.schema.serialize()).decode(),
        "order": [column.name for column in plan.order.columns],
        "never_null": [column.name for column in plan.order.columns if not column.nullable],
        "totals": asdict(plan.totals),
    }


def plan_from_json(told: dict[str, Any]) -> FolderPlan:
    """Return the plan that ``plan_to_json`` told of."""
    spec = TableMergeSpec.from_json(told["spec"])
    (chunk,) = spec.chunks
    schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(told["schema"])))
    roll_up = None
    if spec.roll_up is not None:
        roll_up = RollUpPlan(spec.roll_up, spec.time_column, spec.time_unit, chunk.start_ms, schema)
    return FolderPlan(
        spec,
        chunk,
        told["folder"],
        tuple(chunk.folders()[told["folder"]]),
        schema,
        row_order(schema, told["order"], frozenset(told["never_null"])),
        roll_up,
        SourceTotals(**told["totals"]),
    )
