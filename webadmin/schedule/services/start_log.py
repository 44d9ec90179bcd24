"""Lets the log continue behind that of an index that was lost, so that no fencing token is issued twice.

Records in the bucket tell how far the lost log surely was, but not how much further (``command_log.continue_log``).
"""

from __future__ import annotations

from django.db import transaction

from webadmin.schedule.command_log import continue_log, take_head
from webadmin.schedule.models import Command


def start_log_behind(index: int, *, actor: str) -> int | None:
    """Let the next command's index be far above ``index``; None, and no change, if this log is there already.

    A log without any entry is always moved: who has lost it cannot know how far it was.
    """
    with transaction.atomic(durable=True):
        head, _ = take_head()
        last = Command.objects.order_by("-index").values_list("index", flat=True).first() or head.last_index
        if last and last >= index:
            return None
        return continue_log(index, actor=actor, why="the index is built again from the bucket")
