"""Makes a flush durable and findable: objects into the store, metadata into the index, or dead letters beside them.

Everything here blocks and runs in threads. After ``put_segment`` and either ``register`` or ``put_dead_letter`` nothing
of a segment can be lost.
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
"""Before the second try; it doubles. The store's own client has tried already where it does so (S3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """A segment whose object is durable."""

    segment: OpenSegment
    meta: BlockMeta


def put_segment(store: ObjectStore, segment: OpenSegment) -> StoredSegment | None:
    """Build the segment and write its object; None if nothing was to be stored. A StorageError ends it."""
    built = segment.build(ulids.new(database_clock_ms()))
    if built is None:
        return None
    data, meta = built
    _patiently(lambda: store.put(block_key(meta.shard, "", 0, meta.id), data))
    return StoredSegment(segment=segment, meta=meta)


def register(metas: Sequence[BlockMeta], actor: str) -> list[Answer]:
    """Make all segments of a flush live, one command per batch; return what to tell the senders of each.

    Any error of the database, or an index that is too busy, passes: then nothing is known of any of them.
    """
    close_old_connections()  # one that a restart of the database has cut is not used again
    try:
        answers: list[Answer] = []
        for start in range(0, len(metas), BATCH_MAX):
            registrations = [BlockRegistration.of(meta) for meta in metas[start : start + BATCH_MAX]]
            answers += map(_answer, add_blocks(registrations, actor=actor).answers)
        return answers
    finally:
        close_old_connections()


def put_dead_letter(store: ObjectStore, meta: BlockMeta) -> None:
    """Leave the metadata where the sweep for dead letters finds it. A StorageError passes."""
    _patiently(lambda: store.put(dead_letter_key(meta.shard, "", meta.id), encode_metadata(meta)))


def _answer(answer: BlockAnswer) -> Answer:
    if answer.status in (AddStatus.ACCEPTED, AddStatus.DUPLICATE):
        return ACCEPTED
    code = answer.error.code if answer.error else answer.status.value
    log.error("segment_refused id=%s code=%s reason=%s", answer.id, code, answer.error)
    # With its clock wrong this instance can store nothing; another one can.
    if code in CLOCK_CODES - {"data_in_future"} or answer.error is None:
        return Answer(503, "unavailable", f"the index refused the segment: {code}")
    return Answer(400, code, str(answer.error))


def _patiently(put: Callable[[], object]) -> None:
    """Try a few times what may work the next time."""
    for attempt in range(TRIES):
        try:
            put()
            return
        except StorageError as error:
            if not error.retryable or attempt == TRIES - 1:
                raise
            log.warning("store_failed attempt=%d error=%s", attempt + 1, error)
        time.sleep(PAUSE_SECONDS * 2**attempt)
