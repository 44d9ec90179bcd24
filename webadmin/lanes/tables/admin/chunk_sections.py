"""Sections of one chunk, for its page and the timeline: reason, priority terms, segments, history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Q
from django.utils.safestring import SafeString

from engine.lanes.tables.plan.model import PRIORITY_UNIT
from webadmin.adminkit import formatting as show
from webadmin.adminkit.sections import Facts, Notice, Section, Table
from webadmin.base.database import dialect
from webadmin.lanes.tables.models import Chunk, ChunkOverride, Policy, Segment
from webadmin.lanes.tables.states import ChunkOutcome, ChunkOverrideKind, ChunkStatus, SegmentState
from webadmin.lanes.tables.task_models import Task, TaskChunk

SEGMENTS_SHOWN = 100
HISTORY_SHOWN = 30
REGISTRATIONS_SHOWN = 10
STATE_TONES = {
    ChunkStatus.EMPTY: "quiet",
    ChunkStatus.STABLE: "good",
    ChunkStatus.UNSTABLE: "warn",
    ChunkStatus.DEFERRED: "busy",
    ChunkStatus.SKIPPED: "quiet",
}
MEANINGS = {
    ChunkStatus.EMPTY: "no rows",
    ChunkStatus.STABLE: "not worth compacting",
    ChunkStatus.UNSTABLE: "worth compacting: assigned to a task, or will be",
    ChunkStatus.DEFERRED: "worth compacting, deferred until fewer tasks wait",
    ChunkStatus.SKIPPED: "not analysed",
}
OUTCOME_TONES = {
    ChunkOutcome.PLANNED: "busy",
    ChunkOutcome.PUBLISHED: "good",
    ChunkOutcome.CARRIED_OVER: "good",
    ChunkOutcome.ABORTED: "warn",
    ChunkOutcome.GIVEN_UP: "warn",
}
TERMS = (
    ("fragmentation", "weight_fragmentation", "removed segments relative to the cost"),
    ("oversize", "weight_oversize", "excess size of the largest segment"),
    ("alignment", "weight_alignment", "share of bytes in segments that span chunks"),
    ("recency", "weight_recency", "age of the chunk, halved per half-life"),
)
"""Terms of the priority: name in the analysis, weight in the policy, meaning."""


def chunk_name(chunk: Chunk) -> str:
    """Return the interval of a chunk, in UTC."""
    start, end = show.moment_text(chunk.start_ms), show.moment_text(chunk.end_ms)
    return f"{_short(start)} … {_short(end)}"


def _short(moment: str) -> str:
    return moment.removesuffix(":00").removesuffix(" 00:00")


def state_badge(chunk: Chunk) -> SafeString:
    """Return the badge of the chunk's state."""
    if chunk.is_quarantined:
        return show.badge("quarantined", "bad", chunk.quarantine_reason)
    state = ChunkStatus(chunk.state)
    return show.badge(state.label, STATE_TONES[state], MEANINGS[state])


def state_text(chunk: Chunk) -> str:
    """Return the meaning of the chunk's state."""
    if chunk.is_quarantined:
        return "quarantined after failures until the chunk or its policy changes, or an operator releases it"
    return MEANINGS[ChunkStatus(chunk.state)]


def chunk_notices(chunk: Chunk) -> list[Notice]:
    """Return the notices at the top of a chunk's page."""
    notices = []
    if chunk.is_quarantined:
        notices.append(Notice(tone="bad", text=f"Quarantined after {_failures(chunk)}: {chunk.quarantine_reason}"))
    if chunk.source.refusal:
        notices.append(Notice(tone="bad", text=f"Nothing of this table is planned: {chunk.source.refusal}"))
    for override in overrides_of(chunk):
        what = "Never compact" if override.kind == ChunkOverrideKind.NEVER else "Compact now"
        text = f"{what}: override by {override.actor} for {chunk_name_of(override)}: {override.why}"
        notices.append(Notice(tone="warn" if override.kind == ChunkOverrideKind.NEVER else "busy", text=text))
    if chunk.is_dirty:
        notices.append(Notice(tone="busy", text="The chunk changed after its analysis: values may be outdated."))
    return notices


def chunk_name_of(override: ChunkOverride) -> str:
    """Return the interval of a chunk action, in UTC."""
    return f"{_short(show.moment_text(override.start_ms))} … {_short(show.moment_text(override.end_ms))}"


def _failures(chunk: Chunk) -> str:
    return show.counted(chunk.failures, "failure")


def overrides_of(chunk: Chunk) -> list[ChunkOverride]:
    """Return the active actions that overlap a chunk."""
    overrides = ChunkOverride.objects.filter(source=chunk.source_id, ended_at_ms=None)
    return list(overrides.filter(start_ms__lt=chunk.end_ms, end_ms__gt=chunk.start_ms).order_by("id")[:HISTORY_SHOWN])


def chunk_sections(chunk: Chunk) -> list[Section]:
    """Return the sections of a chunk."""
    segments = segments_of(chunk)
    return [
        _status(chunk),
        _terms(chunk, chunk.source.policy),
        _segments(chunk, segments),
        _tasks(chunk),
        _registrations(segments),
        _counts(chunk),
    ]


def _status(chunk: Chunk) -> Facts:
    task: Task | None = chunk.task
    waits = show.NOTHING if task is None else show.note(show.row_link(task), task.cause)
    return Facts(
        title="Analysis",
        rows=[
            ("State", show.note(state_badge(chunk), state_text(chunk))),
            ("Reason", chunk.reason or "not analysed yet"),
            ("Misaligned", chunk.note or "no"),
            ("Task", waits),
            ("Segments", f"{show.count_text(chunk.segment_count)}, {show.size_text(chunk.byte_count)}"),
            ("Largest segment", _against_max(chunk)),
            ("Cost of compaction", show.size_text(chunk.cost)),
            ("Analysed", show.age(chunk.analysed_at_ms, dialect.clock_ms())),
        ],
    )


def _against_max(chunk: Chunk) -> str:
    wanted = chunk.source.policy.segment_bytes_max
    share = chunk.largest_bytes * 100 // wanted
    return f"{show.size_text(chunk.largest_bytes)}, {share} % of the maximum ({show.size_text(wanted)})"


def _terms(chunk: Chunk, policy: Policy) -> Table:
    figures: dict[str, Any] = chunk.analysis if chunk.priority else {}
    rows = []
    for name, weight_name, meaning in TERMS:
        value, weight = float(figures.get(name, 0.0)), getattr(policy, weight_name)
        rows.append((name.capitalize(), f"{value:.3f}", f"{weight} %", f"{value * weight / 100:.3f}", meaning))
    priority = f"{chunk.priority / PRIORITY_UNIT:.6f}"
    return Table(
        title=f"Priority {priority}",
        headers=("Term", "Value", "Weight", "Share", "Meaning"),
        rows=rows if figures else [],
        empty="None: compaction would not improve the chunk.",
        more="The priority is the sum of the shares, from 0 to 1; the highest is compacted first." if figures else "",
    )


def segments_of(chunk: Chunk) -> list[Segment]:
    """Return the visible and the quarantined files of a chunk, at most one more than are shown."""
    inside = Q(is_spanning=False, start_ms__gte=chunk.start_ms, start_ms__lt=chunk.end_ms)
    touching = Q(is_spanning=True, start_ms__lt=chunk.end_ms, end_ms__gt=chunk.start_ms)
    shown = Segment.objects.filter(inside | touching, source=chunk.source_id)
    shown = shown.filter(state__in=[SegmentState.VISIBLE, SegmentState.QUARANTINED])
    return list(shown.select_related("registration", "made_by").order_by("-size_bytes", "id")[: SEGMENTS_SHOWN + 1])


def _segments(chunk: Chunk, segments: Sequence[Segment]) -> Table:
    more = max(chunk.segment_count - SEGMENTS_SHOWN, 1)
    return Table(
        title="Segments",
        headers=("File", "Size", "Rows", "Version", "Origin"),
        rows=[(_file(each), *_sizes(each), each.version, _origin(each)) for each in segments[:SEGMENTS_SHOWN]],
        empty="None.",
        more=f"The largest {SEGMENTS_SHOWN}; {more} more." if len(segments) > SEGMENTS_SHOWN else "",
    )


def _file(segment: Segment) -> SafeString | str:
    link = show.row_link(segment, show.short_code(segment.path or "tombstone"))
    if segment.state == SegmentState.QUARANTINED:
        return show.note(link, f"quarantined: {segment.reason}")
    return show.note(link, "spans chunks") if segment.is_spanning else link


def _sizes(segment: Segment) -> tuple[str, str]:
    if segment.is_tombstone:
        return show.NOTHING, show.NOTHING
    return show.size_text(segment.size_bytes), show.count_text(segment.row_count)


def _origin(segment: Segment) -> SafeString | str:
    if segment.made_by is not None:
        return show.row_link(segment.made_by)
    return segment.registration.actor if segment.registration is not None else show.NOTHING


def _tasks(chunk: Chunk) -> Table:
    now_ms = dialect.clock_ms()
    rows = TaskChunk.objects.filter(source=chunk.source_id, start_ms=chunk.start_ms).select_related("task")
    return Table(
        title="Tasks",
        headers=("Task", "Planned", "Input", "Outcome", "Result", "Reason"),
        rows=[
            (
                show.row_link(each.task),
                show.age(each.task.created_at_ms, now_ms),
                f"{show.count_text(each.segment_count)}, {show.size_text(each.byte_count)}",
                show.badge(each.get_outcome_display(), OUTCOME_TONES[ChunkOutcome(each.outcome)]),
                _result(each),
                each.why or each.task.ended_because or each.task.cause,
            )
            for each in rows.order_by("-id")[:HISTORY_SHOWN]
        ],
        empty="No tasks.",
    )


def _result(each: TaskChunk) -> str:
    if each.output_count is None:
        return show.NOTHING
    return f"{show.count_text(each.output_count)}, {show.size_text(each.output_bytes)}"


def _registrations(segments: Sequence[Segment]) -> Table:
    now_ms = dialect.clock_ms()
    seen = {each.registration.id: each.registration for each in segments if each.registration is not None}
    newest = sorted(seen.values(), key=lambda one: -one.id)[:REGISTRATIONS_SHOWN]
    return Table(
        title="Registrations",
        headers=("Time", "Actor", "Mode", "Files", "Bytes", "Reason"),
        rows=[
            (
                show.age(each.at_ms, now_ms),
                each.actor,
                each.get_mode_display(),
                show.count_text(each.file_count),
                show.size_text(each.byte_count),
                each.why or show.NOTHING,
            )
            for each in newest
        ],
        empty="No registered files: all files were written by tasks.",
    )


def _counts(chunk: Chunk) -> Facts:
    now_ms = dialect.clock_ms()
    return Facts(
        title="Counters",
        rows=[
            ("Analyses", show.count_text(chunk.analyses)),
            ("Changed", show.counted(chunk.changes, "time")),
            ("Committed", show.counted(chunk.commits, "time")),
            ("Last commit", show.age(chunk.committed_at_ms, now_ms)),
            ("Consecutive failures", show.count_text(chunk.failures)),
            ("Version", show.code(chunk.version) if chunk.version else show.NOTHING),
        ],
    )
