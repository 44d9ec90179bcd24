"""Store a flush: write objects, then register their metadata in the index or write dead letters.

All functions block and run in threads. After ``put_segment`` and either ``register`` or ``put_dead_letter`` a segment
is durable.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.db import close_old_connections

from engine.core import ulids
from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.profile_block.container.object_names import block_key, dead_letter_key
from engine.formats.profile_block.model import BlockMeta
from engine.storage.model import ObjectStore, StorageError
from webadmin.base.database.database_clock import database_clock_ms
from webadmin.ingest.writer.gathering import ACCEPTED, Answer, OpenSegment
from webadmin.lanes.profiles.registration import CLOCK_CODES, BlockRegistration
from webadmin.lanes.profiles.services.add_blocks import BATCH_MAX, AddStatus, BlockAnswer, add_blocks

log = logging.getLogger(__name__)

TRIES = 3
PAUSE_SECONDS = 0.1
"""Delay before the first retry; it doubles. The S3 client has retries of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """A segment whose object is durable."""

    segment: OpenSegment
    meta: BlockMeta


def put_segment(store: ObjectStore, segment: OpenSegment) -> StoredSegment | None:
    """Build the segment and write its object; return None if it has no rows. Raises StorageError."""
    built = segment.build(ulids.new(database_clock_ms()))
    if built is None:
        return None
    data, meta = built
    _with_retries(lambda: store.put(block_key(meta.shard, "", 0, meta.id), data))
    return StoredSegment(segment=segment, meta=meta)


def register(metas: Sequence[BlockMeta], actor: str) -> list[Answer]:
    """Register all segments of a flush, one command per batch; return the outcome of each.

    Errors of the database, or of an overloaded index, are raised; then the outcome of all segments is unknown.
    """
    close_old_connections()  # A restart of the database may have closed the connection.
    try:
        answers: list[Answer] = []
        for start in range(0, len(metas), BATCH_MAX):
            registrations = [BlockRegistration.of(meta) for meta in metas[start : start + BATCH_MAX]]
            answers += map(_answer, add_blocks(registrations, actor=actor).answers)
        return answers
    finally:
        close_old_connections()


def put_dead_letter(store: ObjectStore, meta: BlockMeta) -> None:
    """Write the metadata as a dead letter, which the sweep recovers. Raises StorageError."""
    _with_retries(lambda: store.put(dead_letter_key(meta.shard, "", meta.id), encode_metadata(meta)))


def _answer(answer: BlockAnswer) -> Answer:
    if answer.status in (AddStatus.ACCEPTED, AddStatus.DUPLICATE):
        return ACCEPTED
    code = answer.error.code if answer.error else answer.status.value
    log.error("segment_refused id=%s code=%s reason=%s", answer.id, code, answer.error)
    # With a wrong clock this instance can store nothing, but another one can.
    if code in CLOCK_CODES - {"data_in_future"} or answer.error is None:
        return Answer(503, "unavailable", f"the index refused the segment: {code}")
    return Answer(400, code, str(answer.error))


def _with_retries(put: Callable[[], object]) -> None:
    """Call ``put``; retry on errors that may be transient."""
    for attempt in range(TRIES):
        try:
            put()
            return
        except StorageError as error:
            if not error.retryable or attempt == TRIES - 1:
                raise
            log.warning("store_failed attempt=%d error=%s", attempt + 1, error)
        time.sleep(PAUSE_SECONDS * 2**attempt)
