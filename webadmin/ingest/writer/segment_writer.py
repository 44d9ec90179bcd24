"""Segment writer: collect pushes for half a second, store them in one flush, then respond.

Nothing blocks the event loop: profiles are parsed and segments built in threads (the kernels release the GIL), objects
and rows are written in other threads. A push gets its response once its profiles are durable and visible to queries, or
will be visible when dead letters are recovered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from django.db import Error as AnyDatabaseError

from engine.core.errors import LithifyError
from engine.formats.profile_block.model import BlockMeta
from engine.ingest.segments.segment_push import SegmentPush
from engine.storage.model import ObjectStore
from webadmin.base.database import durability
from webadmin.ingest.writer.gathering import ACCEPTED, Answer, Batch, OpenSegment, WaitingPush
from webadmin.ingest.writer.measures import WriterMeasures
from webadmin.ingest.writer.storing import StoredSegment, put_dead_letter, put_segment, register

log = logging.getLogger(__name__)

PARSE_BYTES = 256 << 10
"""Bytes of queued pushes that start parsing before the flush; smaller amounts are parsed with the flush."""
INDEX_SECONDS = 5.0
"""Timeout of registration in seconds.

After it the segment gets a dead letter; if both succeed, one is a duplicate.
"""
STORE_THREADS, INDEX_THREADS = 16, 2
DRAINING = Answer(503, "draining", "this instance is shutting down; send it to the next one")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterLimits:
    """When to flush, and the maximum bytes of pushes without a response."""

    flush_seconds: float = 0.5
    flush_bytes: int = 32 << 20
    memory_bytes: int = 256 << 20
    parse_threads: int = 2


class SegmentWriter:
    """Collect and store pushes; used on one event loop, and not after ``drain``."""

    def __init__(self, name: str, store: ObjectStore, limits: WriterLimits, measures: WriterMeasures) -> None:
        self.name = name
        self.held_bytes = 0
        self.is_draining = False
        self.store_error = ""
        """Error of the object store in the last flush, "" if all segments were written."""
        self._store = store
        self._limits = limits
        self._measures = measures
        self._index_lost: asyncio.Future[None] | None = None
        self._is_index_away = False
        self._batch: Batch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._parsing: dict[OpenSegment, asyncio.Future[None]] = {}
        self._flushes: set[asyncio.Task[None]] = set()
        self._parsers = ThreadPoolExecutor(limits.parse_threads, "parse")
        self._storers = ThreadPoolExecutor(STORE_THREADS, "store")
        self._indexers = ThreadPoolExecutor(INDEX_THREADS, "index")

    @property
    def is_index_away(self) -> bool:
        """Return whether segments currently get dead letters because the index is unavailable."""
        return self._is_index_away

    def index_answers(self) -> None:
        """Register segments again, after a heartbeat reached the database.

        No flush has to wait for a timeout to detect it.
        """
        self._is_index_away = False

    def has_room(self, size: int) -> bool:
        """Return whether a push of this many bytes may be read; if there is no other, any size is permitted."""
        return not self.held_bytes or self.held_bytes + size <= self._limits.memory_bytes

    async def push(self, push: SegmentPush, size: int) -> Answer:
        """Store the profiles of a push; return once they are durable."""
        if self.is_draining:
            return DRAINING
        if unsafe := _unsafe_answer():
            return unsafe
        if not push.series:
            return ACCEPTED
        waiting = WaitingPush(push=push, size=size, answered=asyncio.get_running_loop().create_future())
        self.held_bytes += size
        try:
            self._gather(waiting)
            return await waiting.answered
        finally:
            self.held_bytes -= size

    async def drain(self) -> None:
        """Reject new pushes, store the collected ones, and respond to all of them."""
        self.is_draining = True
        self._flush()
        while self._flushes:
            await asyncio.wait(self._flushes)
        for pool in (self._parsers, self._storers, self._indexers):
            pool.shutdown(wait=False, cancel_futures=True)

    def _gather(self, waiting: WaitingPush) -> None:
        loop = asyncio.get_running_loop()
        if self._batch is None:
            self._batch = Batch()
            self._timer = loop.call_later(self._limits.flush_seconds, self._flush)
        shard = waiting.push.shard
        segment = self._batch.segments.setdefault(shard, OpenSegment(shard, self.name))
        segment.offer(waiting)
        self._batch.bytes += waiting.size
        if segment.waiting_bytes >= PARSE_BYTES and segment not in self._parsing:
            segment.waiting_bytes = 0
            parsing = loop.run_in_executor(self._parsers, segment.add_waiting)
            self._parsing[segment] = parsing
            parsing.add_done_callback(lambda _: self._parsing.pop(segment, None))
        if self._batch.bytes >= self._limits.flush_bytes:
            self._flush()

    def _flush(self) -> None:
        """Close the batch and store it; the next push opens a new one."""
        batch, self._batch = self._batch, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if batch is not None:
            task = asyncio.get_running_loop().create_task(self._store_batch(batch))
            self._flushes.add(task)
            task.add_done_callback(self._flushes.discard)

    async def _store_batch(self, batch: Batch) -> None:
        try:
            await self._make_durable(batch)
        finally:  # After an unexpected error, which the loop logs, no request may wait without end.
            for push in batch.pushes():
                if not push.answered.done():
                    self._measures.count_push(push, Answer(500, "internal"))
                push.answer(Answer(500, "internal", "the segment could not be made; the writer's log says why"))
            self._measures.observe_flush(time.monotonic() - batch.opened_at)

    async def _make_durable(self, batch: Batch) -> None:
        results = await asyncio.gather(*map(self._put, batch.segments.values()), return_exceptions=True)
        stored: list[StoredSegment] = []
        self.store_error = next((str(result) for result in results if isinstance(result, LithifyError)), "")
        for segment, result in zip(batch.segments.values(), results, strict=True):
            if isinstance(result, StoredSegment):
                stored.append(result)
            elif result is None:
                self._answer(segment, ACCEPTED)
            elif isinstance(result, LithifyError):
                self._measures.count_segment("failed", 0)
                log.error("segment_not_stored shard=%d error=%s", segment.shard, result)
                self._answer(segment, Answer(503, "unavailable", f"the object store failed: {result}"))
            else:
                self._measures.count_segment("failed", 0)
                log.error("segment_not_built shard=%d", segment.shard, exc_info=result)
        if stored:
            await self._make_found(stored)

    async def _put(self, segment: OpenSegment) -> StoredSegment | None:
        parsing = self._parsing.get(segment)
        if parsing is not None:
            await parsing
        return await asyncio.get_running_loop().run_in_executor(self._storers, put_segment, self._store, segment)

    async def _make_found(self, stored: Sequence[StoredSegment]) -> None:
        answers = await self._register([one.meta for one in stored])
        if answers is not None:
            unsafe = _unsafe_answer()  # By a connection opened after the pushes arrived.
            for one, registered in zip(stored, answers, strict=True):
                answer = unsafe or registered
                self._measures.count_segment("indexed" if answer.is_accepted else "refused", one.meta.size)
                self._answer(one.segment, answer)
            return
        loop = asyncio.get_running_loop()
        letters = [loop.run_in_executor(self._storers, put_dead_letter, self._store, one.meta) for one in stored]
        for one, failure in zip(stored, await asyncio.gather(*letters, return_exceptions=True), strict=True):
            self._measures.count_segment("failed" if failure else "dead_letter", one.meta.size)
            if failure:
                log.error("dead_letter_not_written id=%s error=%s", one.meta.id, failure)
            answer = Answer(503, "unavailable", "neither index nor dead letter") if failure else ACCEPTED
            self._answer(one.segment, answer)

    async def _register(self, metas: Sequence[BlockMeta]) -> list[Answer] | None:
        """Register a flush; return None if the index is unavailable."""
        if self._is_index_away:
            return None
        loop = asyncio.get_running_loop()
        lost = self._index_lost = self._index_lost or loop.create_future()
        request = loop.run_in_executor(self._indexers, register, metas, f"writer:{self.name}")
        await asyncio.wait({request, lost}, timeout=INDEX_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        try:
            if request.done():
                return request.result()
            request.cancel()  # If it runs already, its segments are registered twice, and readers drop the duplicates.
            if lost.done():  # Another flush has already reported the outage.
                return None
            reason = "no answer in time"
        except (AnyDatabaseError, LithifyError) as error:
            reason = str(error)
        self._lose_index(len(metas), reason)
        return None

    def _lose_index(self, segments: int, reason: str) -> None:
        """Release every flush that waits for the index; skip registration until a heartbeat has reached it."""
        log.warning("index_away segments=%d error=%s", segments, reason)
        self._is_index_away = True
        if self._index_lost is not None:
            self._index_lost.set_result(None)
            self._index_lost = None

    def _answer(self, segment: OpenSegment, answer: Answer) -> None:
        for push in segment.pushes:
            own = Answer(400, "bad_profile", push.refusal) if push.refusal and answer.is_accepted else answer
            self._measures.count_push(push, own)
            push.answer(own)


def _unsafe_answer() -> Answer | None:
    """Return the response to pushes while the database settings do not guarantee durable commits."""
    reason = durability.refusal()
    return Answer(503, "unsafe_database", reason) if reason else None
