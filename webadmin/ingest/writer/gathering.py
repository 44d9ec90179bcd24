"""Collect the pushes of one flush by shard, and build their segments."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

from engine.core.errors import LithifyError
from engine.formats.profile_block.model import BlockMeta
from engine.ingest.segments.segment import SegmentBuilder
from engine.ingest.segments.segment_push import SegmentPush


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of a push: HTTP status, stable code and message."""

    status: int
    code: str = "ok"
    message: str = ""

    @property
    def is_accepted(self) -> bool:
        return self.status == 200


ACCEPTED = Answer(200)


@dataclass(slots=True, eq=False)
class WaitingPush:
    """A push without a response yet. ``size`` is its memory in bytes;

    ``refusal`` is the error of its first bad profile.
    """

    push: SegmentPush
    size: int
    answered: asyncio.Future[Answer]
    refusal: str = ""
    received_at: float = field(default_factory=time.monotonic)

    def answer(self, answer: Answer) -> None:
        """Set the response, unless the request was cancelled or already has one."""
        if not self.answered.done():
            self.answered.set_result(answer)


class OpenSegment:
    """Collects pushes for one shard.

    ``offer`` runs on the event loop; ``add_waiting`` and ``build`` run in a thread, one call at a time.
    """

    def __init__(self, shard: int, created_by: str) -> None:
        self.shard = shard
        self.pushes: list[WaitingPush] = []
        self.waiting_bytes = 0
        self._builder = SegmentBuilder(shard, created_by)
        self._waiting: deque[WaitingPush] = deque()

    @property
    def profile_count(self) -> int:
        return self._builder.profile_count

    def offer(self, push: WaitingPush) -> None:
        """Queue a push for parsing."""
        self.pushes.append(push)
        self._waiting.append(push)
        self.waiting_bytes += push.size

    def add_waiting(self) -> None:
        """Parse the queued pushes and add them to the segment. An invalid profile does not affect the others."""
        while self._waiting:
            waiting = self._waiting.popleft()
            for number, series in enumerate(waiting.push.series):
                try:
                    self._builder.add(
                        waiting.push.tenant,
                        series.labels,
                        series.pprof,
                        received_at_ns=series.received_at_ns,
                    )
                except LithifyError as error:
                    waiting.refusal = waiting.refusal or f"profile {number} of {len(waiting.push.series)}: {error}"

    def build(self, segment_id: str) -> tuple[bytes, BlockMeta] | None:
        """Add the queued pushes and build the segment; return None if it has no rows."""
        self.add_waiting()
        return self._builder.build(segment_id) if self._builder.row_count else None


@dataclass(slots=True, eq=False)
class Batch:
    """The segments of one flush, one per shard, which are registered together."""

    segments: dict[int, OpenSegment] = field(default_factory=dict)
    bytes: int = 0
    opened_at: float = field(default_factory=time.monotonic)

    def pushes(self) -> list[WaitingPush]:
        """Return all pushes of this flush."""
        return [push for segment in self.segments.values() for push in segment.pushes]
