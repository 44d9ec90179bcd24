"""Continue the log beyond an index that was lost, so that no fencing token is issued twice.

Records in the bucket show an index that the lost log reached, but it may have been further
(``command_log.continue_log``).
"""

from __future__ import annotations

from django.db import transaction

from webadmin.schedule.command_log import continue_log, take_head
from webadmin.schedule.models import Command


def start_log_behind(index: int, *, actor: str) -> int | None:
    """Move the next command's index far above ``index``; return None, without a change, if the log is there already.

    An empty log is always moved: how far the lost one was is unknown.
    """
    with transaction.atomic(durable=True):
        head, _ = take_head()
        last = Command.objects.order_by("-index").values_list("index", flat=True).first() or head.last_index
        if last and last >= index:
            return None
        return continue_log(index, actor=actor, why="the index is built again from the bucket")
