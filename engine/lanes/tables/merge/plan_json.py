"""JSON form of a folder's plan, for Spark tasks that read or write its rows."""

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
    """Return the JSON form of a plan; its specification contains only this chunk."""
    return {
        "spec": replace(plan.spec, chunks=(plan.chunk,)).to_json(),
        "folder": plan.folder,
        "schema": base64.b64encode(plan.schema.serialize()).decode(),
        "order": [column.name for column in plan.order.columns],
        "never_null": [column.name for column in plan.order.columns if not column.nullable],
        "totals": asdict(plan.totals),
    }


def plan_from_json(data: dict[str, Any]) -> FolderPlan:
    """Return the plan that ``plan_to_json`` encoded."""
    spec = TableMergeSpec.from_json(data["spec"])
    (chunk,) = spec.chunks
    schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(data["schema"])))
    roll_up = None
    if spec.roll_up is not None:
        roll_up = RollUpPlan(spec.roll_up, spec.time_column, spec.time_unit, chunk.start_ms, schema)
    return FolderPlan(
        spec,
        chunk,
        data["folder"],
        tuple(chunk.folders()[data["folder"]]),
        schema,
        row_order(schema, data["order"], frozenset(data["never_null"])),
        roll_up,
        SourceTotals(**data["totals"]),
    )
