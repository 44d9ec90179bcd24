"""Query sets of the index: live, queued and due rows."""

from __future__ import annotations

from typing import Self, TypeVar

from django.db import models

from engine.core import ulids
from webadmin.lanes.profiles.states import LIVE_STATES, BlockState

Row = TypeVar("Row", bound=models.Model)


class BlockQuerySet(models.QuerySet[Row]):
    """Query set of blocks."""

    def live(self) -> Self:
        """Return the blocks that queries read."""
        return self.filter(state__in=LIVE_STATES)

    def made_between(self, from_ms: int, until_ms: int) -> Self:
        """Return the blocks with a time in their id (unix milliseconds) in ``[from_ms, until_ms)``."""
        return self.filter(ulid__gte=ulids.first(from_ms), ulid__lt=ulids.first(until_ms))

    def queued_in(self, queue_id: int) -> Self:
        """Return the blocks of a queue by arrival; equal times by id, so that no plan depends on row numbers."""
        return self.filter(queue_id=queue_id, state=BlockState.QUEUED).order_by("arrived_at_ms", "ulid")


class TombstoneQuerySet(models.QuerySet[Row]):
    """Query set of tombstones."""

    def due(self, command_time_ms: int) -> Self:
        """Return the objects that may be deleted now, the oldest first; never that of a live block."""
        eligible = self.filter(eligible_at_ms__lt=command_time_ms, deleted_at_ms=None)
        waiting = eligible.filter(retry_at_ms__lte=command_time_ms).exclude(block__state__in=LIVE_STATES)
        return waiting.order_by("eligible_at_ms", "id")
