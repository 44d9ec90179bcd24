"""Admin actions on tables, chunks and quarantined files: forms and calls of services."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.core.formatting import format_time
from engine.schedule.errors import SnapshotRefused
from engine.storage import cached_store
from webadmin.adminkit import formatting as show
from webadmin.adminkit.orders import OperatorOrder, Outcome
from webadmin.lanes.tables.admin.chunk_sections import chunk_name
from webadmin.lanes.tables.admin.policy_form import PolicyForm, form_values, settings_of
from webadmin.lanes.tables.admin.policy_labels import NUMBER_LABELS, setting_text
from webadmin.lanes.tables.errors import TableRefused
from webadmin.lanes.tables.models import BadFile, Chunk, ChunkOrder, DataSource, Policy
from webadmin.lanes.tables.plan_preview import Preview, preview
from webadmin.lanes.tables.segment_view import Interval, merged
from webadmin.lanes.tables.services.orders import end_orders, order_chunks, release_files, retry_chunks
from webadmin.lanes.tables.services.sources import alter_table
from webadmin.lanes.tables.states import ChunkOrderKind
from webadmin.schedule.services.operation import Order

Values = Mapping[str, Any]
TASKS_SHOWN = 50
AGAIN_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Result of an action or its dry run: the names of what changes, and tables and notes for its page."""

    changed: Sequence[str]
    told: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the result in the form that the action's page shows."""
        return {**self.told, "changed": list(self.changed)}


def _order(values: Values, actor: str, is_dry_run: bool) -> Order:
    return Order(actor=actor, why=values["why"], is_dry_run=is_dry_run)


def _change_policy(rows: Sequence[DataSource], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    [source] = rows[:1]
    wanted = settings_of(values)
    different = alter_table(source, wanted, order=_order(values, actor, is_dry_run))
    before = Policy.objects.get(source=source)
    if not is_dry_run or not different:
        return Done(changed=[_label(name) for name in different])
    after = Policy.objects.get(source=source)
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
    return Done(changed=list(map(_label, different)), told={"settings": settings} | _compared(source, before, after))


def _label(name: str) -> str:
    return NUMBER_LABELS[name].label


def _compared(source: DataSource, before: Policy, after: Policy) -> dict[str, Any]:
    """Return the plans under both policies side by side, and the tasks of the new one."""
    try:
        now, then = preview(source, before), preview(source, after)
    except (SnapshotRefused, TableRefused) as error:
        return {"notes": [f"Nothing can be planned: {error}"]}
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
    ("Worth it, and left alone", lambda one: show.count_text(one.put_off)),
    ("Rewritten again by the next plan", lambda one: show.count_text(len(one.forecast.again))),
)
"""Rows of the comparison of two plans: label and value."""


def _notes(now: Preview, then: Preview, before: Policy, after: Policy) -> list[str]:
    notes = []
    if then.from_ms is not None:
        notes.append(
            f"A sample: the newest {show.count_text(then.segments)} segments, from {format_time(then.from_ms)} on. "
            "The rest of the timeline is not counted."
        )
    if (before.granularity, before.time_zone, before.origin_ms) == (
        after.granularity,
        after.time_zone,
        after.origin_ms,
    ):
        more, fewer = len(then.compacted - now.compacted), len(now.compacted - then.compacted)
        notes.append(
            f"With these settings {show.counted(more, 'chunk')} would be rewritten that would be left alone now, and "
            f"{show.counted(fewer, 'chunk')} the other way round."
        )
    else:
        notes.append("Chunks are others then: all are looked at anew, and tasks that wait are made anew.")
    if after.roll_up is not None:
        notes.append("Rows are rolled up: fewer bytes are written than were read.")
    if then.forecast.segments_out > then.forecast.segments_in:
        notes.append("There would be more segments than now: segments across chunks are cut.")
    if then.forecast.again:
        notes.append(f"This does not come to rest: {again_words(then)}")
    if after.bytes_per_day and then.forecast.bytes_in:
        days = -(-then.forecast.bytes_in // after.bytes_per_day)
        notes.append(f"The budget of a day lets this be done in {show.counted(days, 'day')} at best.")
    return notes


def again_words(found: Preview) -> str:
    """Return text on the chunks that the next plan would compact again, and why."""
    shown = [f"{format_time(chunk.start_ms)} ({chunk.reason})" for chunk in found.forecast.again[:AGAIN_SHOWN]]
    more = len(found.forecast.again) - len(shown)
    return "; ".join(shown) + (f"; and {show.count_text(more)} more" if more else "")


def _pause(is_paused: bool) -> Callable[[Sequence[DataSource], Values, str, bool], Outcome]:
    def give(rows: Sequence[DataSource], values: Values, actor: str, is_dry_run: bool) -> Outcome:
        order = _order(values, actor, is_dry_run)
        return Done(changed=[str(row) for row in rows if alter_table(row, {"is_paused": is_paused}, order=order)])

    return give


def _stretches(rows: Sequence[Chunk]) -> list[tuple[DataSource, Interval]]:
    """Return the chunks as a minimal list of intervals: adjacent chunks of one table are joined."""
    found: defaultdict[DataSource, list[Interval]] = defaultdict(list)
    for row in rows:
        found[row.source].append((row.start_ms, row.end_ms))
    return [(source, interval) for source, intervals in found.items() for interval in merged(intervals)]


def _wanted(kind: ChunkOrderKind) -> Callable[[Sequence[Chunk], Values, str, bool], Outcome]:
    def give(rows: Sequence[Chunk], values: Values, actor: str, is_dry_run: bool) -> Outcome:
        order = _order(values, actor, is_dry_run)
        told = [(source, order_chunks(source, one, kind, order=order)) for source, one in _stretches(rows)]
        sizes = {"segments": sum(row.segment_count for row in rows), "bytes": sum(row.byte_count for row in rows)}
        intervals = [
            {"table": str(source), "start_ms": one.interval[0], "end_ms": one.interval[1]} for source, one in told
        ]
        return Done(changed=[chunk_name(row) for row in rows], told=sizes | {"intervals": intervals})

    return give


def _take_back(rows: Sequence[Chunk], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    order = _order(values, actor, is_dry_run)
    counts = {
        f"orders_{kind.value}": sum(end_orders(source, one, kind, order=order) for source, one in _stretches(rows))
        for kind in ChunkOrderKind
    }
    return Done(changed=[chunk_name(row) for row in rows] if any(counts.values()) else [], told=counts)


def _end(rows: Sequence[ChunkOrder], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    order = _order(values, actor, is_dry_run)
    held = [row for row in rows if row.ended_at_ms is None]
    for row in held:
        end_orders(row.source, (row.start_ms, row.end_ms), ChunkOrderKind(row.kind), order=order)
    return Done(changed=[str(row) for row in held])


def _retry(rows: Sequence[Chunk], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    order = _order(values, actor, is_dry_run)
    held = [row for row in rows if row.is_quarantined]
    for source, interval in _stretches(held):
        retry_chunks(source, interval, order=order)
    return Done(changed=[chunk_name(row) for row in held])


def _release(rows: Sequence[BadFile], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    order = _order(values, actor, is_dry_run)
    paths: defaultdict[DataSource, list[str]] = defaultdict(list)
    for row in rows:
        paths[row.source].append(row.path)
    released = [release_files(source, cached_store(source.url), own, order=order) for source, own in paths.items()]
    return Done(changed=[path for own in released for path in own])


CHANGE_POLICY = OperatorOrder(
    name="change-policy",
    label="Change the policy",
    about="The preview plans the table as it is and with these settings, and says what each would cost. All chunks are "
    "looked at anew after a change.",
    form=PolicyForm,
    give=_change_policy,
    initial=lambda rows: form_values(Policy.objects.get(source=rows[0])) if rows else {},
)
PAUSE_TABLE = OperatorOrder(
    name="pause-table",
    label="Pause",
    about="Nothing more of a table is planned until it is resumed. Tasks that run go on; files may still come in.",
    give=_pause(True),
    fits=lambda row: not row.is_paused,
)
RESUME_TABLE = OperatorOrder(
    name="resume-table",
    label="Resume",
    about="Lets a table be planned again.",
    give=_pause(False),
    fits=lambda row: row.is_paused,
)
COMPACT_NOW = OperatorOrder(
    name="compact-now",
    label="Compact now",
    about="The tasks of these chunks go first, whatever put the chunks off. It ends by itself when nothing in them is "
    "worth compacting any more.",
    give=_wanted(ChunkOrderKind.NOW),
)
COMPACT_NEVER = OperatorOrder(
    name="compact-never",
    label="Never compact",
    about="These chunks are left alone until the order is taken back. Chunks that share segments with them are, too.",
    give=_wanted(ChunkOrderKind.NEVER),
)
TAKE_BACK = OperatorOrder(
    name="take-back",
    label="Take orders back",
    about="Ends what was ordered for these chunks, now or never, so that they go by the policy again. An order over "
    "several chunks ends for all of them.",
    give=_take_back,
)
RETRY = OperatorOrder(
    name="retry-chunks",
    label="Release from quarantine",
    about="Lets chunks be tried again that were set aside after failures. Their failures are forgotten.",
    give=_retry,
    fits=lambda row: row.is_quarantined,
)
END_ORDER = OperatorOrder(
    name="end-order",
    label="Take back",
    about="Ends the order and all of its kind that touch the same chunks: they go by the policy again.",
    give=_end,
    fits=lambda row: row.ended_at_ms is None,
)
RELEASE_FILES = OperatorOrder(
    name="release-files",
    label="Release",
    about="Lets files be seen that could not be read, once they are repaired: they are read anew, and stay out if they "
    "still cannot be read. One that was never in the timeline is forgotten: register it anew.",
    give=_release,
    fits=lambda row: row.released_at_ms is None,
)

SOURCE_ORDERS = (CHANGE_POLICY, PAUSE_TABLE, RESUME_TABLE)
CHUNK_ORDERS = (COMPACT_NOW, COMPACT_NEVER, TAKE_BACK, RETRY)
