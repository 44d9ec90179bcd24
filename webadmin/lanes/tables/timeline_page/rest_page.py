"""Page that checks whether compaction of a table ends: it plans, simulates the result, and plans again."""

from __future__ import annotations

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from engine.core.formatting import format_time
from engine.schedule.errors import SnapshotRefused
from webadmin.adminkit import formatting as show
from webadmin.adminkit.sections import Facts, Notice, Section, Table
from webadmin.lanes.tables.admin.source_sections import again_table, timeline_link
from webadmin.lanes.tables.churn import AGAIN_DAYS, AGAIN_MIN, read_churn
from webadmin.lanes.tables.errors import TableRefused
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tables.plan_preview import Preview, preview
from webadmin.lanes.tables.timeline_page.readers import visible_sources

SHOWN = 100


@admin.site.admin_view
def rest_page(request: HttpRequest, source_id: int) -> HttpResponse:
    """Plan twice, and show what the second plan would rewrite again."""
    source = visible_sources(request.user).filter(id=source_id).select_related("policy").first()
    if source is None:
        raise Http404
    notices: list[Notice] = []
    sections: list[Section] = []
    try:
        found = preview(source, source.policy)
    except (SnapshotRefused, TableRefused) as error:
        notices = [Notice(tone="bad", text=f"Nothing can be planned: {error}")]
    else:
        notices = _notices(found)
        sections = [_plan(source, found), _again(source, found)]
    churn = read_churn(source)
    if churn.is_alarming:
        often = show.counted(len(churn.again), "chunk")
        text = f"What was done: {often} rewritten {AGAIN_MIN} times or more within {AGAIN_DAYS} days."
        notices.append(Notice(tone="warn", text=text))
    context = {
        **admin.site.each_context(request),
        "opts": DataSource._meta,
        "original": source,
        "title": f"Does {source} come to rest?",
        "notices": notices,
        "sections": [*sections, again_table(source, churn)],
    }
    return TemplateResponse(request, "console/detail.html", context)


def _notices(found: Preview) -> list[Notice]:
    notices = []
    if found.from_ms is not None:
        text = f"A sample: the newest {show.count_text(found.segments)} segments, from {format_time(found.from_ms)} on."
        notices.append(Notice(tone="quiet", text=text))
    if not found.forecast.is_fix_point:
        chunks = show.counted(len(found.forecast.again), "chunk")
        text = f"No: when all that is planned now were done, the next plan would rewrite {chunks} again."
        return [*notices, Notice(tone="bad", text=text)]
    what = (
        f"after {show.counted(len(found.forecast.plan.tasks), 'task')}" if found.forecast.plan.tasks else "it rests now"
    )
    return [*notices, Notice(tone="good", text=f"Yes, {what}: the plan after that is empty.")]


def _plan(source: DataSource, found: Preview) -> Facts:
    forecast = found.forecast
    return Facts(
        title="The plan now",
        rows=[
            ("Table", timeline_link(source, str(source))),
            ("Tasks", show.count_text(len(forecast.plan.tasks))),
            ("Chunks rewritten", f"{show.count_text(forecast.chunks)} of {show.count_text(len(forecast.plan.chunks))}"),
            ("Segments", f"{show.count_text(forecast.segments_in)} become {show.count_text(forecast.segments_out)}"),
            ("Bytes", show.size_text(forecast.bytes_in)),
            ("Cost", show.size_text(forecast.cost)),
        ],
    )


def _again(source: DataSource, found: Preview) -> Table:
    again = found.forecast.again
    return Table(
        title="Rewritten again by the plan after it",
        headers=("Chunk (UTC)", "Why"),
        rows=[
            (timeline_link(source, show.moment_text(chunk.start_ms), chunk.start_ms), chunk.reason)
            for chunk in again[:SHOWN]
        ],
        empty="None: the second plan is empty.",
        more=f"{show.count_text(len(again) - SHOWN)} more" if len(again) > SHOWN else "",
    )
