"""Settings of a table in the form that the planner takes, with their permitted ranges."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from django.db.models import F

from engine.lanes.tables.jobs import RollUp, roll_up_from_json
from engine.lanes.tables.plan.granularity import Granularity
from engine.lanes.tables.plan.policy import Align, QueueLimits, TimelinePolicy
from engine.lanes.tables.specs import SORT_COLUMNS_MAX, read_roll_up
from engine.protocol.errors import InvalidMessage
from engine.protocol.fields import Fields
from engine.schedule.errors import PolicyRefused
from webadmin.lanes.tables.column_sizes import COLUMN_MAX, ZONE_MAX
from webadmin.lanes.tables.errors import IntervalRefused, TableRefused
from webadmin.lanes.tables.models import Chunk, DataSource, Policy, Segment
from webadmin.lanes.tables.states import ChunkOverrideKind, SegmentState

GRANULARITY_MAX = 30
CHUNKS_TOUCHED_MAX = 10_000
"""Maximum number of chunks that a file or interval may touch; more indicate a wrong time."""
NUMBERS: Mapping[str, tuple[int, int]] = {
    "segment_bytes_max": (1, 1 << 50),
    "segment_rows_max": (0, 1 << 50),
    "small_cost": (0, 1 << 60),
    "task_cost_max": (1, 1 << 60),
    "open_cost": (0, 1 << 50),
    "gain_half": (1, 1 << 30),
    "weight_fragmentation": (0, 100),
    "weight_oversize": (0, 100),
    "weight_alignment": (0, 100),
    "weight_recency": (0, 100),
    "half_life_seconds": (0, 1 << 30),
    "hot_seconds": (0, 1 << 30),
    "running_max": (0, 10_000),
    "running_cost_max": (0, 1 << 60),
    "waiting_max": (1, 10_000),
    "low_water": (0, 10_000),
    "skips_max": (0, 1_000_000),
    "ageing_seconds": (0, 1 << 30),
    "bytes_per_day": (0, 1 << 60),
    "deletion_delay_seconds": (0, 365 * 86_400),
}
"""Minimum and maximum of the numeric settings."""
SETTINGS = ("granularity", "time_zone", "origin_ms", "align", "sort_columns", "roll_up", *NUMBERS)
"""All settings of a policy."""
_TIMES = (-(1 << 62), 1 << 62)


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in stored form. Raises TableRefused naming the invalid one."""
    if unknown := sorted(settings.keys() - set(SETTINGS)):
        raise TableRefused(f"{unknown[0][:60]!r} cannot be set: there are {', '.join(SETTINGS)}")
    fields = Fields("policy", dict(settings))
    try:
        return {name: _checked(name, fields) for name in settings}
    except InvalidMessage as error:
        raise TableRefused(str(error)) from error


def _checked(name: str, fields: Fields) -> Any:
    if name in NUMBERS:
        return fields.integer(name, *NUMBERS[name])
    return _READERS[name](fields)


def _origin(fields: Fields) -> int | None:
    return None if fields.values["origin_ms"] is None else fields.integer("origin_ms", *_TIMES)


def _sort_columns(fields: Fields) -> list[str]:
    names = list(fields.items("sort_columns", SORT_COLUMNS_MAX))
    if not all(isinstance(name, str) and 0 < len(name) <= COLUMN_MAX and "\0" not in name for name in names):
        raise fields.error("sort_columns", "names of columns are expected")
    if len(set(names)) != len(names):
        raise fields.error("sort_columns", "a column stands twice")
    return names


def _roll_up(fields: Fields) -> dict[str, Any] | None:
    values = fields.optional("roll_up")
    if values is None:
        return None
    read = read_roll_up(values)
    return {
        "dimensions": list(read.dimensions),
        "metrics": [{"name": one.name, "function": one.function, "column": one.column} for one in read.metrics],
        "granularity_ms": read.granularity_ms,
    }


_READERS: Mapping[str, Callable[[Fields], Any]] = {
    "granularity": lambda fields: fields.text("granularity", GRANULARITY_MAX, empty=False),
    "time_zone": lambda fields: fields.text("time_zone", ZONE_MAX, empty=False),
    "origin_ms": _origin,
    "align": lambda fields: fields.choice("align", [each.value for each in Align]),
    "sort_columns": _sort_columns,
    "roll_up": _roll_up,
}


def granularity_of(policy: Policy) -> Granularity:
    """Return the granularity of a table's chunks. Raises TableRefused."""
    if policy.granularity == "all":
        raise TableRefused("a table has chunks of a period: hour, day, week, month, quarter, year or like PT6H")
    try:
        return Granularity(period=policy.granularity, timezone=policy.time_zone, origin_ms=policy.origin_ms)
    except PolicyRefused as error:
        raise TableRefused(str(error)) from error


def roll_up_of(policy: Policy) -> RollUp | None:
    """Return how rows are rolled up, None if they are not."""
    return None if policy.roll_up is None else roll_up_from_json(policy.roll_up)


def policy_of(policy: Policy, excluded: Sequence[tuple[int, int, str]] = ()) -> TimelinePolicy:
    """Return the planning policy of a table; ``excluded`` are (start, end, reason). Raises TableRefused."""
    granularity = granularity_of(policy)
    try:
        return TimelinePolicy(
            granularity=granularity,
            segment_bytes_max=policy.segment_bytes_max,
            segment_rows_max=policy.segment_rows_max,
            small_cost=policy.small_cost,
            cost_max=policy.task_cost_max,
            open_cost=policy.open_cost,
            gain_half=policy.gain_half,
            weights=(
                policy.weight_fragmentation,
                policy.weight_oversize,
                policy.weight_alignment,
                policy.weight_recency,
            ),
            half_life_ms=policy.half_life_seconds * 1000,
            hot_ms=policy.hot_seconds * 1000,
            align=Align(policy.align),
            partial_visibility=False,  # a Parquet file is either visible as a whole or not at all
            excluded=tuple(excluded),
            output_shape=json.dumps([policy.sort_columns, policy.roll_up], sort_keys=True),
        )
    except PolicyRefused as error:
        raise TableRefused(str(error)) from error


def limits_of(policy: Policy) -> QueueLimits:
    """Return the limits of running and waiting tasks of a table. Raises TableRefused."""
    try:
        return QueueLimits(
            running_max=policy.running_max,
            running_cost_max=policy.running_cost_max,
            waiting_max=policy.waiting_max,
            low_water=policy.low_water,
            skips_max=policy.skips_max,
            ageing_ms=policy.ageing_seconds * 1000,
        )
    except PolicyRefused as error:
        raise TableRefused(str(error)) from error


def fingerprint_of(policy: Policy) -> str:
    """Return the fingerprint of a policy; chunks are analysed again when it changes. Raises TableRefused."""
    limits_of(policy)
    return policy_of(policy).fingerprint()


def excluded_of(source: DataSource) -> list[tuple[int, int, str]]:
    """Return the intervals that an operator excluded from compaction, each with the reason."""
    overrides = source.overrides.filter(kind=ChunkOverrideKind.NEVER, ended_at_ms=None).order_by("start_ms")
    return list(overrides.values_list("start_ms", "end_ms", "why"))


def chunks_of(granularity: Granularity, start_ms: int, end_ms: int) -> list[tuple[int, int]]:
    """Return the chunks that an interval touches, in order. Raises IntervalRefused if there are too many."""
    first, last = granularity.ordinals(np.array([start_ms, end_ms - 1])).tolist()
    if last - first >= CHUNKS_TOUCHED_MAX:
        raise IntervalRefused(
            f"from {start_ms} to {end_ms} ms there are {last - first + 1} chunks: more than {CHUNKS_TOUCHED_MAX} at "
            "once are a wrong time, or too fine a granularity"
        )
    borders = granularity.starts(np.arange(first, last + 2)).tolist()
    return list(itertools.pairwise(borders))


def mark_dirty(source: DataSource, granularity: Granularity, intervals: Iterable[tuple[int, int]]) -> None:
    """Mark the chunks that these intervals touch as changed, inside a transaction."""
    chunks = {chunk for start, end in set(intervals) for chunk in chunks_of(granularity, start, end)}
    rows = [Chunk(source=source, start_ms=start, end_ms=end) for start, end in sorted(chunks)]
    Chunk.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["source", "start_ms"], update_fields=["is_dirty"]
    )
    Chunk.objects.filter(source=source, start_ms__in=[start for start, _ in chunks]).update(changes=F("changes") + 1)
    DataSource.objects.filter(id=source.id).update(is_dirty=True)


def regrid(source: DataSource, policy: Policy) -> None:
    """Replace the chunks of a table after a change of granularity; the controller ends tasks of the old chunks."""
    granularity = granularity_of(policy)
    Chunk.objects.filter(source=source).delete()
    visible = list(Segment.objects.filter(source=source, state=SegmentState.VISIBLE).only("id", "start_ms", "end_ms"))
    for segment in visible:
        segment.is_spanning = granularity.chunk_of(segment.start_ms)[1] < segment.end_ms
    Segment.objects.bulk_update(visible, ["is_spanning"], batch_size=1000)
    mark_dirty(source, granularity, {(segment.start_ms, segment.end_ms) for segment in visible})
