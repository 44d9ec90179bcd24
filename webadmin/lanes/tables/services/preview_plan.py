"""Plan a whole table without changes, under its own or another policy, and forecast a second plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.lanes.tables.plan.forecast import PlanForecast, forecast_plan
from engine.schedule.errors import SnapshotRefused
from webadmin.base.database import dialect
from webadmin.lanes.tables.errors import TableRefused
from webadmin.lanes.tables.models import Chunk, DataSource, Policy
from webadmin.lanes.tables.policies import check_settings, excluded_of, limits_of, policy_of
from webadmin.lanes.tables.segment_view import whole_timeline


def preview_plan(source: DataSource, changes: Mapping[str, Any] | None = None) -> PlanForecast:
    """Return the plan of a whole table as if it had no tasks; ``changes`` are settings as ``alter_table`` takes them.

    Reads every segment: for operators, not for control tasks. Raises TableRefused.
    """
    own = Policy.objects.get(source=source)
    for name, value in check_settings(changes or {}).items():
        setattr(own, name, value)
    limits_of(own)
    policy = policy_of(own, excluded_of(source))
    left = Chunk.objects.filter(source=source, outputs_fingerprint=policy.output_fingerprint())
    try:
        return forecast_plan(
            str(source),
            whole_timeline(source),
            policy,
            now_ms=dialect.clock_ms(),
            outputs={start: frozenset(outputs) for start, outputs in left.values_list("start_ms", "outputs")},
        )
    except SnapshotRefused as error:
        raise TableRefused(str(error)) from error
