"""Lets the log go on behind that of an index that was lost, so that no fencing token is given out twice.

Records in the bucket tell how far the lost log surely was, but not how much further. A log grows by far less than a
command per millisecond, so the time itself is behind it; should the clock be wrong, a wide margin is.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import transaction

from engine.scheduling.model import FORMAT_VERSION
from webadmin.database import dialect
from webadmin.schedule.command_log import move_head, take_head
from webadmin.schedule.models import Command

MARGIN = 10_000_000
"""Commands of days under full load, which the lost log may have been ahead of its last record."""


def start_log_behind(index: int, *, actor: str) -> int | None:
    """Let the next command's index be far above ``index``; None, and no change, if this log is there already.

    A log without any entry is always moved: who has lost it cannot know how far it was.
    """
    with transaction.atomic(durable=True):
        head, time = take_head()
        last = Command.objects.order_by("-index").values_list("index", flat=True).first() or head.last_index
        if last and last >= index:
            return None
        first = max(index + MARGIN, time.wall_ms)
        Command.objects.create(
            index=first,
            kind=Command.Kind.ADVANCE_CLOCK,
            actor=actor,
            command_time_ms=time.now_ms,
            wall_time=datetime.fromtimestamp(time.wall_ms / 1000, UTC),
            format_version=FORMAT_VERSION,
            change_set={"behind": index},
        )
        dialect.continue_ids(Command, "index", first)
        move_head(first, time, live_jobs=head.live_job_count)
    return first
