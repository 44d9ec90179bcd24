"""Operators' actions on tables, chunks and quarantined files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Sum

from engine.core.formatting import format_time
from engine.schedule.errors import SnapshotRefused
from engine.storage import cached_store
from webadmin.adminkit import formatting as show
from webadmin.base.access.scopes import MayWriteTables
from webadmin.base.actions.action import ActionContext, OperatorAction, Values
from webadmin.base.actions.fields import Choice, Texts, YesOrNo
from webadmin.lanes.tables.api import serializers as shapes
from webadmin.lanes.tables.column_sizes import PATH_MAX
from webadmin.lanes.tables.errors import TableRefused
from webadmin.lanes.tables.models import BadFile, Chunk, ChunkOverride, DataSource, Policy
from webadmin.lanes.tables.plan_preview import Preview, preview
from webadmin.lanes.tables.policy_fields import form_values
from webadmin.lanes.tables.policy_labels import NUMBER_LABELS, setting_text
from webadmin.lanes.tables.segment_view import Interval, merged
from webadmin.lanes.tables.services.overrides import end_overrides, override_chunks, release_files, retry_chunks
from webadmin.lanes.tables.services.sources import alter_table
from webadmin.lanes.tables.services.take_files import FILES_MAX
from webadmin.lanes.tables.states import ChunkOverrideKind
from webadmin.lanes.tables.table_fields import END_MS, POLICY, START_MS, TABLE

TASKS_SHOWN = 50
AGAIN_SHOWN = 20
KIND = Choice(
    "kind",
    "Kind",
    "now or never",
    choices=tuple((kind.value, kind.value) for kind in ChunkOverrideKind),
    make=ChunkOverrideKind,
    is_required=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome:
    """The outcome of an action on a table; ``changed`` is a mapping of settings, a number, or names."""

    source: DataSource
    is_dry_run: bool
    changed: Any
    interval: Interval | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for API and commands."""
        return {"dry_run": self.is_dry_run, "changed": self.changed}


def _alter(values: Values, context: ActionContext) -> TableOutcome:
    changes = dict(values["policy"])
    if values["is_paused"] is not None:
        changes["is_paused"] = values["is_paused"]
    changed = alter_table(values["table"], changes, context=context)
    return TableOutcome(source=values["table"], is_dry_run=context.is_dry_run, changed=changed)


def _altered(outcomes: Sequence[TableOutcome], is_dry_run: bool) -> dict[str, Any]:
    """Return the changes, and in a dry run the plans under both policies."""
    [outcome] = outcomes
    different, labels = outcome.changed, [_label(name) for name in outcome.changed]
    if not is_dry_run or not different:
        return {"changed": labels}
    before, after = (Policy.objects.get(source=outcome.source) for _ in range(2))
    for name, value in different.items():
        setattr(after, name, value)
    settings = [
        {
            "setting": _label(name),
            "before": setting_text(name, getattr(before, name)),
            "after": setting_text(name, value),
        }
        for name, value in different.items()
    ]
    return {"settings": settings, "changed": labels} | _compared(outcome.source, before, after)


def _label(name: str) -> str:
    return NUMBER_LABELS[name].label


def _compared(source: DataSource, before: Policy, after: Policy) -> dict[str, Any]:
    """Return the plans under both policies side by side, and the tasks of the new one."""
    try:
        now, then = preview(source, before), preview(source, after)
    except (SnapshotRefused, TableRefused) as error:
        return {"notes": [f"Planning failed: {error}"]}
    plan = [{"what": what, "as_it_is": said(now), "with_these_settings": said(then)} for what, said in PLAN_ROWS]
    tasks = sorted(then.forecast.plan.tasks, key=lambda task: -task.priority)[:TASKS_SHOWN]
    shown = [
        {
            "from": show.moment_text(task.start_ms),
            "until": show.moment_text(task.end_ms),
            "chunks": len(task.chunks),
            "cost": show.size_text(task.cost),
            "priority": f"{task.priority / 1_000_000:.3f}",
            "colour": "red" if not task.colour else "black",
            "why": task.reason,
        }
        for task in tasks
    ]
    return {"plan": plan, "notes": _notes(now, then, before, after), "first_tasks": shown}


PLAN_ROWS: Sequence[tuple[str, Callable[[Preview], object]]] = (
    ("Tasks", lambda one: show.count_text(len(one.forecast.plan.tasks))),
    ("Chunks rewritten", lambda one: show.count_text(one.forecast.chunks)),
    ("Segments read", lambda one: show.count_text(one.forecast.segments_in)),
    ("Segments written", lambda one: show.count_text(one.forecast.segments_out)),
    ("Bytes in", lambda one: show.size_text(one.forecast.bytes_in)),
    ("Bytes out, about", lambda one: show.size_text(one.forecast.bytes_in)),
    ("Cost", lambda one: show.size_text(one.forecast.cost)),
    ("Worth compacting, not planned", lambda one: show.count_text(one.put_off)),
    ("Rewritten again by the next plan", lambda one: show.count_text(len(one.forecast.again))),
)
"""Rows of the comparison of two plans: label and value."""


def _notes(now: Preview, then: Preview, before: Policy, after: Policy) -> list[str]:
    notes = []
    if then.from_ms is not None:
        notes.append(
            f"Sample of the newest {show.count_text(then.segments)} segments, from {format_time(then.from_ms)} on. "
            "The rest of the timeline is not counted."
        )
    if (before.granularity, before.time_zone, before.origin_ms) == (
        after.granularity,
        after.time_zone,
        after.origin_ms,
    ):
        more, fewer = len(then.compacted - now.compacted), len(now.compacted - then.compacted)
        notes.append(
            f"With these settings {show.counted(more, 'chunk')} would be rewritten in addition, and "
            f"{show.counted(fewer, 'chunk')} no longer."
        )
    else:
        notes.append("All chunks are analysed again, and waiting tasks are planned again.")
    if after.roll_up is not None:
        notes.append("Rows are rolled up: fewer bytes are written than were read.")
    if then.forecast.segments_out > then.forecast.segments_in:
        notes.append("There would be more segments than now: segments across chunks are cut.")
    if then.forecast.again:
        notes.append(f"Compaction does not converge: {again_words(then)}")
    if after.bytes_per_day and then.forecast.bytes_in:
        days = -(-then.forecast.bytes_in // after.bytes_per_day)
        notes.append(f"With the daily budget this takes {show.counted(days, 'day')} at best.")
    return notes


def again_words(found: Preview) -> str:
    """Return text on the chunks that the next plan would compact again, and why."""
    shown = [f"{format_time(chunk.start_ms)} ({chunk.reason})" for chunk in found.forecast.again[:AGAIN_SHOWN]]
    more = len(found.forecast.again) - len(shown)
    return "; ".join(shown) + (f"; and {show.count_text(more)} more" if more else "")


def _tables_changed(outcomes: Sequence[TableOutcome], is_dry_run: bool) -> dict[str, Any]:
    return {"changed": [str(one.source) for one in outcomes if one.changed]}


def _stretches(rows: Sequence[Chunk]) -> list[dict[str, Any]]:
    """Return the chunks as a minimal list of intervals: adjacent chunks of one table are joined."""
    found: defaultdict[DataSource, list[Interval]] = defaultdict(list)
    for row in rows:
        found[row.source].append((row.start_ms, row.end_ms))
    return [
        {"table": source, "start_ms": start, "end_ms": end}
        for source, intervals in found.items()
        for start, end in merged(intervals)
    ]


def _interval(values: Values) -> Interval:
    return (values["start_ms"], values["end_ms"])


def _override_chunks(values: Values, context: ActionContext) -> dict[str, Any]:
    source, kind = values["table"], values["kind"]
    found = override_chunks(source, _interval(values), kind, context=context)
    start, end = found.interval
    sums = Chunk.objects.filter(source=source, start_ms__gte=start, end_ms__lte=end).aggregate(
        segments=Sum("segment_count", default=0), bytes=Sum("byte_count", default=0)
    )
    return {"dry_run": context.is_dry_run, "table": str(source), **found.to_json(), **sums}


def _overridden(outcomes: Sequence[dict[str, Any]], is_dry_run: bool) -> dict[str, Any]:
    totals = {name: sum(one[name] for one in outcomes) for name in ("chunks", "segments", "bytes")}
    intervals = [{name: one[name] for name in ("table", "start_ms", "end_ms")} for one in outcomes]
    return totals | {"intervals": intervals}


def _end_orders(values: Values, context: ActionContext) -> TableOutcome:
    kinds = list(ChunkOverrideKind) if values["kind"] is None else [values["kind"]]
    interval = _interval(values)
    count = sum(end_overrides(values["table"], interval, kind, context=context) for kind in kinds)
    return TableOutcome(source=values["table"], is_dry_run=context.is_dry_run, changed=count, interval=interval)


def _retry(values: Values, context: ActionContext) -> TableOutcome:
    interval = _interval(values)
    count = retry_chunks(values["table"], interval, context=context)
    return TableOutcome(source=values["table"], is_dry_run=context.is_dry_run, changed=count, interval=interval)


def _intervals_changed(outcomes: Sequence[TableOutcome], is_dry_run: bool) -> dict[str, Any]:
    names = [
        f"{one.source} from {format_time(one.interval[0])} to {format_time(one.interval[1])}"
        for one in outcomes
        if one.changed and one.interval
    ]
    return {"changed": names, "found": sum(one.changed for one in outcomes)}


def _release(values: Values, context: ActionContext) -> dict[str, Any]:
    source = values["table"]
    released = release_files(source, cached_store(source.url), values["paths"], context=context)
    return {"dry_run": context.is_dry_run, "released": released}


def _released(outcomes: Sequence[dict[str, Any]], is_dry_run: bool) -> dict[str, Any]:
    return {"changed": [path for one in outcomes for path in one["released"]]}


def _files(rows: Sequence[BadFile]) -> list[dict[str, Any]]:
    paths: defaultdict[DataSource, list[str]] = defaultdict(list)
    for row in rows:
        paths[row.source].append(row.path)
    return [{"table": source, "paths": own} for source, own in paths.items()]


def _ends(rows: Sequence[ChunkOverride]) -> list[dict[str, Any]]:
    return [
        {"table": row.source, "start_ms": row.start_ms, "end_ms": row.end_ms, "kind": ChunkOverrideKind(row.kind)}
        for row in rows
        if row.ended_at_ms is None
    ]


ALTER_TABLE = OperatorAction(
    name="change-policy",
    operation="alter_table",
    label="Change the policy",
    about="The preview compares plans and costs under the current and the new settings. All chunks are "
    "analysed again after a change.",
    targets=(TABLE,),
    fields=(
        POLICY,
        YesOrNo("is_paused", "Paused", "Planning is stopped while the table is paused."),
    ),
    apply=_alter,
    permission=MayWriteTables,
    outcome=shapes.AlteredSerializer,
    may_conflict=True,
)
CHANGE_POLICY = replace(
    ALTER_TABLE,
    fields=(POLICY,),
    of_rows=lambda rows: [{"table": rows[0], "is_paused": None}],
    initial=lambda rows: form_values(Policy.objects.get(source=rows[0])) if rows else {},
    describe=_altered,
)
PAUSE_TABLE = replace(
    ALTER_TABLE,
    name="pause-table",
    label="Pause",
    about="Stops planning of a table until it is resumed. Running tasks continue; files can still be registered.",
    fields=(),
    of_rows=lambda rows: [{"table": row, "policy": {}, "is_paused": True} for row in rows],
    fits=lambda row: not row.is_paused,
    describe=_tables_changed,
)
RESUME_TABLE = replace(
    PAUSE_TABLE,
    name="resume-table",
    label="Resume",
    about="Resumes planning of a table.",
    of_rows=lambda rows: [{"table": row, "policy": {}, "is_paused": False} for row in rows],
    fits=lambda row: row.is_paused,
)
OVERRIDE_CHUNKS = OperatorAction(
    name="compact-now",
    operation="override_chunks",
    label="Compact now",
    about="Compacts chunks first, even if deferred. The override ends automatically when no chunk in it is "
    "worth compacting any more.",
    targets=(TABLE, START_MS, END_MS),
    fields=(KIND,),
    apply=_override_chunks,
    permission=MayWriteTables,
    outcome=shapes.OverriddenChunksSerializer,
    may_conflict=True,
    describe=_overridden,
)
COMPACT_NOW = replace(
    OVERRIDE_CHUNKS,
    fields=(),
    of_rows=lambda rows: [{**one, "kind": ChunkOverrideKind.NOW} for one in _stretches(rows)],
)
COMPACT_NEVER = replace(
    OVERRIDE_CHUNKS,
    name="compact-never",
    label="Never compact",
    about="These chunks are not compacted until the override ends, nor chunks that share segments with them.",
    fields=(),
    of_rows=lambda rows: [{**one, "kind": ChunkOverrideKind.NEVER} for one in _stretches(rows)],
)
END_CHUNK_OVERRIDES = OperatorAction(
    name="end-overrides",
    operation="end_chunk_overrides",
    label="End overrides",
    about="Ends overrides of chunks, so that the policy applies again. An override of several chunks ends for "
    "all of them.",
    targets=(TABLE, START_MS, END_MS),
    fields=(replace(KIND, is_required=False, about="now or never; default: both"),),
    apply=_end_orders,
    permission=MayWriteTables,
    outcome=shapes.ChangedCountSerializer,
    may_conflict=True,
    describe=_intervals_changed,
)
END_OVERRIDES = replace(
    END_CHUNK_OVERRIDES, fields=(), of_rows=lambda rows: [{**one, "kind": None} for one in _stretches(rows)]
)
END_OVERRIDE = replace(
    END_CHUNK_OVERRIDES, name="end-override", fields=(), of_rows=_ends, fits=lambda row: row.ended_at_ms is None
)
RETRY_CHUNKS = OperatorAction(
    operation="retry_chunks",
    label="Release from quarantine",
    about="Retries chunks that are quarantined after failures, and resets their failure counts.",
    targets=(TABLE, START_MS, END_MS),
    apply=_retry,
    permission=MayWriteTables,
    outcome=shapes.ChangedCountSerializer,
    may_conflict=True,
    of_rows=lambda rows: _stretches([row for row in rows if row.is_quarantined]),
    fits=lambda row: row.is_quarantined,
    describe=_intervals_changed,
)
RELEASE_FILES = OperatorAction(
    operation="release_files",
    label="Release",
    about="Reads repaired files again. They stay hidden if they still cannot "
    "be read. A file that was never in the timeline is removed from the list: register it again.",
    targets=(
        TABLE,
        Texts(
            "paths", "Files", "Paths below the table's URL.", length_max=PATH_MAX, count_max=FILES_MAX, is_required=True
        ),
    ),
    apply=_release,
    permission=MayWriteTables,
    outcome=shapes.ReleasedFilesSerializer,
    may_conflict=True,
    of_rows=_files,
    fits=lambda row: row.released_at_ms is None,
    describe=_released,
)

SOURCE_ACTIONS = (CHANGE_POLICY, PAUSE_TABLE, RESUME_TABLE)
CHUNK_ACTIONS = (COMPACT_NOW, COMPACT_NEVER, END_OVERRIDES, RETRY_CHUNKS)
