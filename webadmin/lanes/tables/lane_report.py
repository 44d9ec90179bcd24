"""Progress and problem reports of the lane of tables."""

from __future__ import annotations

from engine.schedule.progress import count_text, first_names, seconds_text
from webadmin.lanes.tables.models import Chunk, DataSource
from webadmin.lanes.tables.status import TableStatus, statuses, stuck_counts
from webadmin.schedule.lanes import LaneBlocker, Waiting


def tables_waiting(tenant: str | None) -> list[Waiting]:
    """Return the chunks of each table that are worth compacting. Fixed number of queries."""
    rows = DataSource.objects.defer("columns", "arrow_schema")
    sources = list(rows if tenant is None else rows.filter(tenant=tenant))
    now = statuses(sources) if sources else {}
    found = []
    for source in sources:
        status = now[source.id]
        if count := status.unstable + max(status.deferred, 0):
            found.append(
                Waiting(
                    tenant=source.tenant,
                    name=str(source),
                    count=count,
                    unit="chunk",
                    size_bytes=status.to_rewrite,
                    words=_clears(status),
                    is_paused=source.is_paused,
                )
            )
    return found


def _clears(now: TableStatus) -> str:
    if now.clears_in_ms is None:
        return "never at this rate"
    return f"in {seconds_text(now.clears_in_ms / 1000)}" if now.clears_in_ms else "nothing due"


def table_blockers() -> list[LaneBlocker]:
    """Return the problems of tables that need an operator."""
    found = []
    if count := DataSource.objects.filter(is_paused=False).exclude(refusal="").count():
        remedy = "read the reason on the page of the table, or with manage.py tables status"
        found.append(LaneBlocker("tables_refused", f"{count_text(count, 'table')} not planned", remedy))
    if count := DataSource.objects.exclude(publish_error="").count():
        text = f"{count_text(count, 'table')} with readers behind: the manifest cannot be written"
        found.append(LaneBlocker("tables_unpublished", text, "check the store of the table; the write is tried again"))
    if count := Chunk.objects.filter(is_quarantined=True).count():
        text = f"{count_text(count, 'chunk')} of tables quarantined after failures"
        found.append(
            LaneBlocker("chunks_set_aside", text, "repair the cause, then release them on the page of the table")
        )
    if count := stuck_counts().total():
        text = f"{count_text(count, 'chunk')} of tables stuck: worth compacting, and of no task"
        remedy = "read the reason with manage.py tables explain, then plan the table with manage.py tables plan"
        found.append(LaneBlocker("chunks_stuck", text, remedy))
    return found


def tables_kept(tenant: str) -> list[str]:
    """Return a sentence on the tables that a request to delete the tenant's data leaves unchanged, if any."""
    names = list(DataSource.objects.filter(tenant=tenant).order_by("name").values_list("name", flat=True))
    if not names:
        return []
    return [
        f"{count_text(len(names), 'table')} ({first_names(names)}): not hidden and not rewritten. Rows, files and "
        "timelines stay as they are; delete their files where they lie."
    ]
