"""Sections of a table's page: status, problems, rewrites, policy."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import F
from django.urls import reverse
from django.utils.safestring import SafeString

from webadmin.adminkit import formatting as show
from webadmin.adminkit.sections import Facts, Notice, Section, Table
from webadmin.base.access.models import AuditEntry
from webadmin.base.database import dialect
from webadmin.lanes.tables.admin.chunk_sections import chunk_name_of
from webadmin.lanes.tables.budget import Budget, read_budget
from webadmin.lanes.tables.churn import AGAIN_DAYS, AGAIN_MIN, AGAIN_SHOWN, Churn, read_churn
from webadmin.lanes.tables.models import BadFile, Chunk, ChunkOverride, DataSource
from webadmin.lanes.tables.policy_labels import NUMBER_LABELS, setting_text
from webadmin.lanes.tables.status import RATE_WINDOW_MS, STUCK_MS, TableStatus, statuses, table_state
from webadmin.lanes.tables.task_models import Manifest

SHOWN = 50
HISTORY_SHOWN = 20


def timeline_link(source: DataSource, text: str = "Timeline", chunk_ms: int | None = None) -> SafeString:
    """Return a link to a table's timeline, with the chunk at ``chunk_ms`` opened."""
    return show.link(timeline_address(source, chunk_ms), text)


def timeline_address(source: DataSource, chunk_ms: int | None = None) -> str:
    """Return the URL of a table's timeline, with the chunk at ``chunk_ms`` opened."""
    query = {} if chunk_ms is None else {"chunk": str(chunk_ms)}
    return reverse("timeline-page", args=[source.id], query=query or None)


def clears(now: TableStatus) -> SafeString | str:
    """Return the expected time until the backlog is rewritten, as text."""
    if not now.to_rewrite:
        return show.badge("nothing to rewrite", "good")
    if now.clears_in_ms is not None:
        return f"in {show.duration_text(now.clears_in_ms)} at the rate of the last hour"
    if not now.drained and not now.arrived:
        return show.badge("no rewrites", "warn", "no arrivals and no rewrites in the last hour")
    return show.badge("never at this rate", "bad", "more bytes arrived than were rewritten in the last hour")


def manifest_words(source: DataSource) -> SafeString | str:
    """Return how far the published manifest is behind, as text."""
    behind = source.sequence - source.published
    if source.publish_error:
        return show.badge(f"behind by {show.count_text(behind)}", "bad", source.publish_error)
    if behind:
        return show.badge(f"behind by {show.count_text(behind)}", "warn", "changes not visible to readers yet")
    return show.badge("up to date", "good")


def state_badge(source: DataSource, now: TableStatus) -> SafeString:
    """Return the badge of a table's state."""
    state = table_state(source, now)
    return show.badge(state.word, state.tone, state.why)


def source_notices(source: DataSource, now: TableStatus) -> list[Notice]:
    """Return the notices of a table that need an operator."""
    notices = []
    if source.refusal:
        notices.append(Notice(tone="bad", text=f"Planning is refused: {source.refusal}"))
    if source.is_paused:
        notices.append(Notice(tone="warn", text="The table is paused: planning is stopped."))
    if source.publish_error:
        text = f"Readers do not see {_changes(source)}: the manifest could not be written: {source.publish_error}"
        notices.append(Notice(tone="bad", text=text))
    if now.parked:
        text = f"{show.counted(now.parked, 'task')} parked after failures until an operator decides: see the tasks."
        notices.append(Notice(tone="bad", text=text))
    if now.quarantined:
        text = f"{show.counted(now.quarantined, 'chunk')} quarantined after failures, until released."
        notices.append(Notice(tone="bad", text=text))
    if now.bad_files:
        text = f"{show.counted(now.bad_files, 'file')} quarantined: their rows are hidden from readers."
        notices.append(Notice(tone="bad", text=text))
    if now.stuck:
        text = (
            f"{show.counted(now.stuck, 'chunk')} worth compacting, but not in a task for "
            f"{show.duration_text(STUCK_MS)}: check that a control worker runs, or plan now with 'tables plan'."
        )
        notices.append(Notice(tone="bad", text=text))
    churn = read_churn(source)
    if churn.is_alarming:
        often = show.counted(len(churn.again), "chunk")
        text = f"Churn: {often} rewritten {AGAIN_MIN} times or more within {AGAIN_DAYS} days. Set a hot window."
        notices.append(Notice(tone="warn", text=text))
    budget = read_budget(source)
    if budget.is_spent and now.has_work:
        text = f"The daily budget is used up; some is available again in {show.duration_text(budget.refills_in_ms)}."
        notices.append(Notice(tone="warn", text=text))
    return notices


def _changes(source: DataSource) -> str:
    return show.counted(source.sequence - source.published, "change")


def source_sections(source: DataSource) -> list[Section]:
    """Return the sections of a table's page."""
    [now] = statuses([source]).values()
    churn = read_churn(source)
    return [
        _status(source, now),
        _budget(read_budget(source), now),
        _quarantined(source),
        _bad_files(source),
        _orders(source),
        _days(churn),
        again_table(source, churn),
        _place(source),
        _policy(source),
        _history(source),
        _manifests(source),
    ]


def _status(source: DataSource, now: TableStatus) -> Facts:
    hour = show.duration_text(RATE_WINDOW_MS)
    chunks = f"{show.count_text(now.chunks)} known, {show.count_text(now.unstable)} of them worth compacting"
    return Facts(
        title="Status",
        rows=[
            ("State", state_badge(source, now)),
            ("Timeline", timeline_link(source, "Show")),
            ("Chunks", chunks),
            ("Tasks running", show.count_text(now.running)),
            ("Tasks waiting", f"{show.count_text(now.waiting)}, and {show.count_text(now.blocked)} blocked by others"),
            ("Put off (deferred)", show.counted(now.deferred, "chunk")),
            ("Quarantined", show.counted(now.quarantined, "chunk")),
            ("To rewrite", show.size_text(now.to_rewrite)),
            (f"Arrived within {hour}", show.size_text(now.arrived)),
            (f"Rewritten within {hour}", show.size_text(now.drained)),
            ("Clear", clears(now)),
            ("Manifest", manifest_words(source)),
            ("Convergence", show.link(reverse("timeline-rest", args=[source.id]), "Check with two plans")),
            ("Quarantined files", show.count_text(now.bad_files)),
            ("Analysed", show.age(source.analysed_at_ms, dialect.clock_ms())),
            ("Last file", _newest(source)),
        ],
    )


def _newest(source: DataSource) -> SafeString | str:
    last = source.registrations.order_by("-id").values_list("at_ms", flat=True).first()
    return show.age(last, dialect.clock_ms())


def _budget(budget: Budget, now: TableStatus) -> Facts:
    limit = show.size_text(budget.limit) if budget.limit else "none: only the limits apply"
    left = show.size_text(budget.left) if budget.limit else show.NOTHING
    refills = f"in {show.duration_text(budget.refills_in_ms)}" if budget.used else show.NOTHING
    return Facts(
        title="Daily budget",
        rows=[
            ("Bytes per day", limit),
            ("Used within 24 hours", show.size_text(budget.used)),
            ("Left", left),
            ("Waiting for budget", _waiting(budget, now)),
            ("Available again", refills),
        ],
    )


def _waiting(budget: Budget, now: TableStatus) -> str:
    if not budget.limit:
        return "nothing"
    size = f"{show.counted(budget.waiting_tasks, 'task')} of {show.size_text(budget.waiting_bytes)}"
    return f"{size}, and {show.counted(now.deferred, 'deferred chunk')}"


def _quarantined(source: DataSource) -> Table:
    rows = Chunk.objects.filter(source=source, is_quarantined=True).order_by("-start_ms")[: SHOWN + 1]
    return Table(
        title="Quarantined chunks",
        headers=("Chunk", "Failures", "Reason"),
        rows=[
            (
                timeline_link(source, show.moment_text(each.start_ms), each.start_ms),
                show.count_text(each.failures),
                each.quarantine_reason,
            )
            for each in rows[:SHOWN]
        ],
        empty="None.",
        more="More: see the chunks of the table." if len(rows) > SHOWN else "",
    )


def _bad_files(source: DataSource) -> Table:
    rows = BadFile.objects.filter(source=source, released_at_ms=None).order_by("-id")[: SHOWN + 1]
    return Table(
        title="Quarantined files",
        headers=("File", "Size", "Reason", "Since"),
        rows=[
            (
                show.row_link(each, show.short_code(each.path)),
                show.size_text(each.size_bytes),
                show.note(each.error_class, each.message[:200]),
                show.age(each.at_ms, dialect.clock_ms()),
            )
            for each in rows[:SHOWN]
        ],
        empty="No unreadable files.",
        more="More: see the quarantined files." if len(rows) > SHOWN else "",
    )


def _orders(source: DataSource) -> Table:
    rows = ChunkOverride.objects.filter(source=source, ended_at_ms=None).order_by("-id")[:SHOWN]
    return Table(
        title="Overrides in force",
        headers=("Override", "Chunks (UTC)", "Who", "Why", "Since"),
        rows=[
            (
                each.get_kind_display(),
                chunk_name_of(each),
                each.actor,
                each.why,
                show.age(each.created_at_ms, dialect.clock_ms()),
            )
            for each in rows
        ],
        empty="No overrides: the policy applies.",
    )


def _days(churn: Churn) -> Table:
    return Table(
        title="Write amplification",
        headers=("Day (UTC)", "Arrived", "Read by tasks", "Written by tasks", "Bytes read per arrived byte"),
        rows=[
            (
                show.moment_text(day.start_ms)[:10],
                show.size_text(day.arrived_bytes),
                show.size_text(day.read),
                show.size_text(day.written),
                f"{day.read / day.arrived_bytes:.1f}" if day.arrived_bytes else show.NOTHING,
            )
            for day in churn.days
        ],
        more=f"{show.size_text(churn.read_again)} of this in chunks already rewritten within {AGAIN_DAYS} days.",
    )


def again_table(source: DataSource, churn: Churn) -> Table:
    """Return the chunks that were rewritten repeatedly."""
    return Table(
        title="Repeatedly rewritten chunks",
        headers=("Chunk (UTC)", f"Commits within {AGAIN_DAYS} days"),
        rows=[
            (timeline_link(source, show.moment_text(start), start), show.count_text(count))
            for start, _, count in churn.again[:AGAIN_SHOWN]
        ],
        empty=f"None: no chunk was rewritten {AGAIN_MIN} times or more within {AGAIN_DAYS} days.",
        more=f"{len(churn.again) - AGAIN_SHOWN} more" if len(churn.again) > AGAIN_SHOWN else "",
    )


def _place(source: DataSource) -> Facts:
    partitions = ", ".join(str(column) for column in source.partition_columns) or "none"
    return Facts(
        title="Location",
        rows=[
            ("URL", show.code(source.url)),
            ("Time column", show.code(source.time_column)),
            ("Columns", show.count_text(len(source.columns))),
            ("Partition columns", partitions),
        ],
    )


def _policy(source: DataSource) -> Facts:
    policy = source.policy
    rows = [(words.label, setting_text(name, getattr(policy, name))) for name, words in NUMBER_LABELS.items()]
    return Facts(title="Policy", rows=rows)


def _history(source: DataSource) -> Table:
    entries = AuditEntry.objects.filter(target=str(source), action__in=["create_table", "alter_table"])
    return Table(
        title="Policy history",
        headers=("When", "Who", "Changed", "Why"),
        rows=[
            (
                show.moment_text(show.epoch_ms(entry.at)),
                entry.actor,
                _changed(entry.detail) or "created",
                entry.detail.get("why") or show.NOTHING,
            )
            for entry in entries.order_by(F("id").desc())[:HISTORY_SHOWN]
        ],
        empty="No changes.",
    )


def _changed(detail: dict[str, dict[str, object]]) -> str:
    after, before = detail.get("after") or {}, detail.get("before") or {}
    parts: Sequence[str] = [
        f"{_label(name)}: {setting_text(name, before.get(name))} → {setting_text(name, value)}"
        for name, value in after.items()
    ]
    return "; ".join(parts)


def _label(name: str) -> str:
    return NUMBER_LABELS[name].label if name in NUMBER_LABELS else name.removeprefix("is_").capitalize()


def _manifests(source: DataSource) -> Table:
    now_ms = dialect.clock_ms()
    rows = Manifest.objects.filter(source=source).order_by("-sequence")[:10]
    return Table(
        title="Last manifests",
        headers=("Sequence", "Files", "Bytes", "Rows", "Published", "Object"),
        rows=[
            (
                show.count_text(each.sequence),
                show.count_text(each.file_count),
                show.size_text(each.byte_count),
                show.count_text(each.row_count),
                show.age(each.published_at_ms, now_ms),
                "deleted" if each.deleted_at_ms is not None else show.code(each.path),
            )
            for each in rows
        ],
        empty="No manifests.",
    )
