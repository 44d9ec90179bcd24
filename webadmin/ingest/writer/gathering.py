"""Profiles on their way into segments: what came for one shard since the last flush, and who waits for it."""

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
    """How a push ended: an HTTP status, a stable code and words."""

    status: int
    code: str = "ok"
    message: str = ""

    @property
    def is_accepted(self) -> bool:
        return self.status == 200


ACCEPTED = Answer(200)


@dataclass(slots=True, eq=False)
class WaitingPush:
    """A push that is not answered yet. ``size`` are the bytes it keeps in memory; ``refusal`` says what is wrong."""

    push: SegmentPush
    size: int
    answered: asyncio.Future[Answer]
    refusal: str = ""
    received_at: float = field(default_factory=time.monotonic)

    def answer(self, answer: Answer) -> None:
        """Tell the sender, unless it has gone or knows."""
        if not self.answered.done():
            self.answered.set_result(answer)


class OpenSegment:
    """Collects pushes for one shard. Pushes come on the event loop; ``add_waiting`` and ``build`` run in one thread at
    a time, beside it."""

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
        """Take a push; it is parsed later."""
        self.pushes.append(push)
        self._waiting.append(push)
        self.waiting_bytes += push.size

    def add_waiting(self) -> None:
        """Parse what waits and add it to the segment; a profile that cannot be stored stops none of the others."""
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
        """Add what still waits and lay the segment out; None if nothing of it is to be stored."""
        self.add_waiting()
        return self._builder.build(segment_id) if self._builder.row_count else None


@dataclass(slots=True, eq=False)
class Batch:
    """What one flush stores: a segment per shard, registered together."""

    segments: dict[int, OpenSegment] = field(default_factory=dict)
    bytes: int = 0
    opened_at: float = field(default_factory=time.monotonic)

    def pushes(self) -> list[WaitingPush]:
        """Return everybody who waits for this flush."""
        return [push for segment in self.segments.values() for push in segment.pushes]
