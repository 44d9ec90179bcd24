"""Two pages of the admin: the progress of the schedule, and why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from engine.schedule.progress import Outlook, count_text, seconds_text
from webadmin.adminkit import formatting as show
from webadmin.adminkit.sections import Facts, Notice, Section, Table
from webadmin.progress.facts import Standstill, read_standstill
from webadmin.progress.health import Health, judge
from webadmin.progress.report import LaneRow, ProgressReport, ProgressRow, progress_report
from webadmin.schedule.admin.job_page import tenant_text
from webadmin.schedule.errors import NotFound
from webadmin.schedule.explain import explain_name

TONES = {
    Outlook.CLEAR: "good",
    Outlook.SHRINKS: "busy",
    Outlook.NEVER: "bad",
    Outlook.UNKNOWN: "quiet",
    Outlook.PAUSED: "warn",
}
ROWS_SHOWN_MAX = 200
EVERY_JOB = "schedule.view_job"


@admin.site.admin_view
def progress_page(request: HttpRequest) -> HttpResponse:
    """Render backlog, rates and outlook per tenant and level, and per shard."""
    report = progress_report()
    sections: list[Section] = [
        _everything(report),
        _table("By tenant and level", ("Tenant", "Level"), report.tenants),
        _table("By shard", ("Shard",), report.shards),
        *([_lanes(report.lanes)] if report.lanes else []),
    ]
    notices = [] if report.counted_ms_ago is not None else [_not_counted()]
    return _page(request, "Progress", sections, notices)


@admin.site.admin_view
def standstill_page(request: HttpRequest) -> HttpResponse:
    """Render why the schedule makes no progress, and the explanation of a block or job by its name."""
    facts = read_standstill()
    health = judge(facts, stalled_after_seconds=settings.STALLED_AFTER_SECONDS)
    tone = "good" if health.is_healthy and not health.blockers else "warn" if health.is_healthy else "bad"
    sections: list[Section] = [
        _blockers(health),
        _facts(facts),
    ]
    notices = [Notice(tone=tone, text=f"{health.summary[:1].upper()}{health.summary[1:]}.")]
    name = request.GET.get("name", "").strip()
    answers = _answers(name, request.user) if name else []
    return _page(
        request, "Why is nothing happening?", sections, notices, {"asks": True, "name": name, "answers": answers}
    )


def _blockers(health: Health) -> Section:
    """Return the blockers of the schedule and their remedies as sentences, which wrap on a narrow screen."""
    title = "Blockers and remedies"
    if not health.blockers:
        return Table(title=title, headers=(), rows=[], empty="No blockers.")
    return Facts(title=title, rows=[(f"{b.text[:1].upper()}{b.text[1:]}", b.remedy) for b in health.blockers])


def _answers(name: str, user: Any) -> list[Notice]:
    if not user.has_perm(EVERY_JOB):
        return [Notice(tone="warn", text="Explanations for all tenants require the permission to view jobs.")]
    try:
        return [Notice(tone="busy", text=found.sentence) for found in explain_name(name)]
    except NotFound as error:
        return [Notice(tone="warn", text=f"{str(error)[:1].upper()}{str(error)[1:]}.")]


def _page(
    request: HttpRequest,
    title: str,
    sections: Iterable[Section],
    notices: Iterable[Notice],
    more: dict[str, Any] | None = None,
) -> HttpResponse:
    context = {**admin.site.each_context(request), "title": title, "sections": sections, "notices": notices}
    return TemplateResponse(request, "progress/page.html", context | (more or {}))


def _everything(report: ProgressReport) -> Facts:
    row = report.everything
    return Facts(
        title="Everything",
        rows=[
            ("Waiting", f"{show.counted(row.backlog.blocks, 'block')}, {show.size_text(row.backlog.bytes)}"),
            ("Due", show.counted(row.backlog.due_blocks, "block")),
            ("Paused", show.counted(row.backlog.paused_blocks, "due block")),
            ("In jobs", show.counted(row.backlog.jobs, "job")),
            ("Parked", show.counted(row.backlog.parked_jobs, "job")),
            ("Arrival rate", rates(row.flow.arrived_blocks, row.flow.arrived_bytes, row)),
            ("Drain rate", drained(row)),
            ("Clear", clear_badge(row)),
            ("Work", f"{seconds_text(report.work_seconds)} of one job slot"),
            ("Rate window", seconds_text(report.window_seconds) if report.window_seconds else "no counts yet"),
            ("Counted", _counted(report.counted_ms_ago)),
        ],
    )


def _counted(ms_ago: int | None) -> str:
    return "never" if ms_ago is None else f"{show.duration_text(ms_ago)} ago"


def _not_counted() -> Notice:
    return Notice(tone="warn", text="No counts yet: rates require beat and a control worker.")


def _table(title: str, place: tuple[str, ...], rows: Iterable[ProgressRow]) -> Table:
    rows = list(rows)
    shown = rows[:ROWS_SHOWN_MAX]
    missing = len(rows) - len(shown)
    return Table(
        title=title,
        headers=(*place, "Waiting", "Due", "Jobs", "Parked", "Arrival rate", "Drain rate", "Clear"),
        rows=[
            (
                *_place(row),
                show.note(show.count_text(row.backlog.blocks), show.size_text(row.backlog.bytes)),
                show.count_text(row.backlog.due_blocks),
                row.backlog.jobs,
                show.badge(str(row.backlog.parked_jobs), "warn", "out of the schedule")
                if row.backlog.parked_jobs
                else 0,
                rates(row.flow.arrived_blocks, row.flow.arrived_bytes, row),
                drained(row),
                clear_badge(row),
            )
            for row in shown
        ],
        empty="No waiting blocks and no recent counts.",
        more=f"{show.counted(missing, 'more row')} not shown." if missing else "",
    )


def _lanes(rows: Sequence[LaneRow]) -> Table:
    return Table(
        title="Work not scheduled yet",
        headers=("Lane", "Name", "Waiting", "Size", "Clear"),
        rows=[
            (
                row.lane,
                show.name(row.waiting.name),
                count_text(row.waiting.count, row.waiting.unit),
                show.size_text(row.waiting.size_bytes),
                row.words,
            )
            for row in rows[:ROWS_SHOWN_MAX]
        ],
    )


def _place(row: ProgressRow) -> tuple[object, ...]:
    return (row.shard,) if row.shard is not None else (show.name(tenant_text(row.tenant or "")), row.level)


def rates(blocks: int, size: int, row: ProgressRow) -> str:
    """Return a flow per second in blocks and bytes."""
    text = f"{row.flow.per_second(blocks):.2f}{show.GAP}blocks/s"
    return show.note(text, f"{show.size_text(int(row.flow.per_second(size)))}/s") if blocks else show.NOTHING


def drained(row: ProgressRow) -> str:
    """Return the rate at which a backlog drains, and how much of it was dropped unmerged."""
    text = rates(row.flow.drained_blocks, row.flow.drained_bytes, row)
    dropped = row.flow.per_second(row.flow.dropped_blocks)
    return show.note(text, f"{dropped:.2f}{show.GAP}blocks/s of this dropped unmerged") if dropped else text


def clear_badge(row: ProgressRow) -> str:
    """Return when a backlog will be cleared."""
    clear = row.clearing
    return show.badge(clear.words(), TONES[clear.outlook])


def _held(count: int, paused: int, noun: str) -> str:
    text = show.counted(count, noun)
    return f"{text}, of them {show.count_text(paused)} paused" if paused else text


def _facts(facts: Standstill) -> Facts:
    return Facts(
        title="Schedule status",
        rows=[
            ("Queues ready", _held(facts.due_queues + facts.paused_queues, facts.paused_queues, "queue")),
            ("Jobs waiting", _held(facts.waiting_jobs, facts.paused_jobs, "job")),
            ("Jobs running", f"{facts.leased_jobs}, of them {facts.expired_jobs} with an expired lease"),
            ("Jobs parked", show.counted(facts.parked_jobs, "job")),
            ("Live jobs", f"{facts.live_jobs} of {facts.queue_max or 'unlimited'}"),
            ("Workers polling", f"{facts.polling_workers} of {facts.known_workers} known"),
            ("Free slots offered", facts.offered_capacity),
            ("Paused by operators", ", ".join(facts.paused) or "nothing"),
            ("Last job completed", _counted(facts.completed_ms_ago)),
            ("Time without a completion", show.duration_text(facts.stalled_ms) if facts.stalled_ms else show.NOTHING),
            ("Progress counted", _counted(facts.counted_ms_ago)),
        ],
    )
