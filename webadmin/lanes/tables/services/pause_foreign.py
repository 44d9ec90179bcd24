"""Pause a table whose folder belongs to a table of another format, so that none of its files is merged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from engine.lanes.tables.plain.foreign_formats import ForeignTable
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.tables.column_sizes import REASON_MAX
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tables.services.sources import alter_table

log = logging.getLogger(__name__)

ACTOR = "control:tables"


@contextmanager
def pause_foreign(source: DataSource, *, is_dry_run: bool) -> Iterator[None]:
    """Pause the table if the block raises ForeignTable, unless in a dry run, and re-raise.

    Files that are already replaced are not deleted.
    """
    try:
        yield
    except ForeignTable as error:
        if is_dry_run:
            raise
        alter_table(source, {"is_paused": True}, context=ActionContext(actor=ACTOR, why=str(error)))
        DataSource.objects.filter(id=source.id).update(refusal=str(error)[:REASON_MAX])
        log.error("foreign_table table=%s reason=%s", source, error)
        raise
