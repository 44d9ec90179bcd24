"""Front page section of tables: their statuses, largest backlog first, cached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.core.cache import cache

from webadmin.adminkit import formatting as show
from webadmin.adminkit.overview import LaneOverview
from webadmin.adminkit.sections import Notice, Table
from webadmin.base.access.confinement import cache_key
from webadmin.lanes.tables.admin.source_sections import clears, manifest_words, state_badge, timeline_link
from webadmin.lanes.tables.models import BadFile, Chunk, DataSource
from webadmin.lanes.tables.status import TableStatus, statuses

TABLES_SHOWN = 8
KEPT_SECONDS = 15
_KEY = "timeline-overview"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A table and its status."""

    source: DataSource
    now: TableStatus


def table_rows() -> list[TableRow]:
    """Return the statuses of tables, most bytes to rewrite first; cached for ``KEPT_SECONDS``."""
    key = cache_key(_KEY)
    found: list[TableRow] | None = cache.get(key)
    if found is None:
        sources = list(DataSource.objects.defer("columns", "arrow_schema").order_by("tenant", "name"))
        now = statuses(sources) if sources else {}
        rows = [TableRow(source=source, now=now[source.id]) for source in sources]
        found = sorted(rows, key=lambda one: -one.now.to_rewrite)
        cache.set(key, found, timeout=KEPT_SECONDS)
    return found


def tables_table(rows: Sequence[TableRow]) -> Table:
    """Return the tables with the remaining work in each."""
    more = len(rows) - TABLES_SHOWN
    return Table(
        title="Tables",
        headers=("Table", "State", "Tasks", "Deferred", "Quarantined", "To rewrite", "Clear", "Manifest"),
        rows=[
            (
                show.note(show.row_link(one.source, show.name(str(one.source))), timeline_link(one.source)),
                state_badge(one.source, one.now),
                f"{show.count_text(one.now.running)} running, {show.count_text(one.now.waiting)} waiting, "
                f"{show.count_text(one.now.blocked)} blocked",
                show.counted(one.now.deferred, "chunk"),
                f"{show.counted(one.now.quarantined, 'chunk')}, {show.counted(one.now.bad_files, 'file')}",
                show.size_text(one.now.to_rewrite),
                clears(one.now),
                manifest_words(one.source),
            )
            for one in rows[:TABLES_SHOWN]
        ],
        more=show.link(show.list_address(DataSource), f"{more} more") if more > 0 else "",
    )


def tables_overview() -> LaneOverview:
    """Return the state of tables for the front page."""
    rows = table_rows()
    return LaneOverview(
        notices=list(_notices(rows)),
        wide_sections=[tables_table(rows)] if rows else [],
        holds=show.counted(len(rows), "table") if rows else "",
    )


def _notices(rows: Sequence[TableRow]) -> Iterator[Notice]:
    tables = show.list_address(DataSource)
    if unpublished := sum(bool(one.source.publish_error) for one in rows):
        text = f"{show.counted(unpublished, 'table')} with an outdated manifest: it cannot be written."
        yield Notice(tone="bad", text=text, address=tables)
    if stuck := sum(one.now.stuck for one in rows):
        text = f"{show.counted(stuck, 'chunk')} of tables stuck: worth compacting, but not in a task."
        yield Notice(tone="bad", text=text, address=tables)
    if bad_files := sum(one.now.bad_files for one in rows):
        text = f"{show.counted(bad_files, 'file')} of tables quarantined as unreadable, with the reason."
        yield Notice(tone="warn", text=text, address=show.list_address(BadFile))
    if quarantined := sum(one.now.quarantined for one in rows):
        text = f"{show.counted(quarantined, 'chunk')} of tables quarantined after failures, until released."
        yield Notice(tone="warn", text=text, address=show.list_address(Chunk, state="quarantined"))
    if refused := sum(bool(one.source.refusal) for one in rows):
        text = f"{show.counted(refused, 'table')} not planned, with the reason."
        yield Notice(tone="warn", text=text, address=tables)
