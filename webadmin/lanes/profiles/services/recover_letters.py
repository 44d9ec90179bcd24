"""Recover dead letters: metadata written beside its object because the index was unavailable.

The oldest id comes first, in any shard, among those with equally many attempts, so that bad letters never block the
rest. A bad one is kept, with the reason in a row for operators. Only an unavailable database stops a sweep, and
everything is kept. A letter is deleted after its block is in the index, so that after a crash between the two the next
sweep finds a duplicate.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from django.db import transaction

from engine.core.errors import BadBlockName, LithifyError
from engine.formats.profile_block.container.metadata import METADATA_BYTES_MAX, decode_metadata, encode_metadata
from engine.formats.profile_block.container.object_names import (
    ANONYMOUS,
    DEAD_LETTERS,
    BlockKey,
    block_key,
    parse_dead_letter_key,
)
from engine.storage.model import ObjectInfo, ObjectNotFound, ObjectStore
from webadmin.base.database import dialect
from webadmin.lanes.profiles.letter_models import REASON_MAX
from webadmin.lanes.profiles.models import DeadLetter, LetterState
from webadmin.lanes.profiles.registration import BlockRegistration
from webadmin.lanes.profiles.services.add_blocks import AddStatus, BlockAnswer, add_blocks, forecast_blocks
from webadmin.lanes.profiles.services.event_totals import LETTERS, count_events

log = logging.getLogger(__name__)

ACTOR = "control:dead_letters"
SWEPT = "swept"
SWEEP_MS = 24 * 3_600_000
"""Age after which the claim of a sweep on a row has expired, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """An object under ``dlq/`` whose name contains the block id."""

    info: ObjectInfo
    named: BlockKey


@dataclass(slots=True, kw_only=True)
class RecoveryOutcome:
    """Numbers of recovered and of empty, deleted letters, and the keys that are kept; ``stray`` keys are no letters."""

    recovered: int = 0
    empty: int = 0
    kept: list[tuple[str, str]] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)


class _LetterKept(LithifyError):
    """The letter is kept for now; ``code`` is the reason."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def recover_letters(*, store: ObjectStore, limit: int = 1000) -> RecoveryOutcome:
    """Try the ``limit`` oldest letters, those with the fewest attempts first.

    A DatabaseError ends the sweep; letters that were not recovered are kept.
    """
    outcome = RecoveryOutcome()
    attempts = dict(DeadLetter.objects.filter(state=LetterState.WAITING).values_list("key", "attempts"))

    def place(letter: Letter) -> tuple[int, str, str]:
        # By id, not by shard: the oldest data has been missing longest.
        return attempts.get(letter.info.key, 0), letter.named.id, letter.info.key

    for letter in heapq.nsmallest(limit, _letters(store, outcome), key=place):
        _recover(store, letter, outcome)
    _count(outcome)
    log.info(
        "letters_swept recovered=%d empty=%d kept=%d stray=%d",
        outcome.recovered,
        outcome.empty,
        len(outcome.kept),
        len(outcome.stray),
    )
    return outcome


def recover_named(*, store: ObjectStore, keys: Iterable[str]) -> RecoveryOutcome:
    """Try these letters now, in the order of their ids."""
    outcome = RecoveryOutcome()
    letters = []
    for key in keys:
        try:
            letters.append(Letter(info=store.head(key), named=parse_dead_letter_key(key)))
        except ObjectNotFound:
            _settle_missing(key)
        except BadBlockName:
            outcome.stray.append(key)
    for letter in sorted(letters, key=lambda letter: (letter.named.id, letter.info.key)):
        _recover(store, letter, outcome)
    _count(outcome)
    return outcome


def forecast_named(*, store: ObjectStore, keys: Iterable[str]) -> RecoveryOutcome:
    """Return what ``recover_named`` would do now; objects are read and nothing is changed.

    For kept letters the reason replaces the code.
    """
    outcome = RecoveryOutcome()
    for key in keys:
        try:
            letter = Letter(info=store.head(key), named=parse_dead_letter_key(key))
            if letter.info.size == 0:
                outcome.empty += 1
                continue
            _check_answer(forecast_blocks([_read(store, letter)])[0])
        except BadBlockName:
            outcome.stray.append(key)
        except LithifyError as error:
            outcome.kept.append((key, str(error)))
        else:
            outcome.recovered += 1
    return outcome


def _letters(store: ObjectStore, outcome: RecoveryOutcome) -> Iterable[Letter]:
    for info in store.list(f"{DEAD_LETTERS}/"):
        try:
            yield Letter(info=info, named=parse_dead_letter_key(info.key))
        except BadBlockName:
            outcome.stray.append(info.key)


def _recover(store: ObjectStore, letter: Letter, outcome: RecoveryOutcome) -> None:
    key = letter.info.key
    try:
        if letter.info.size == 0:  # its writer died before the first byte
            store.delete(key)
            outcome.empty += 1
            _settle_missing(key)
            return
        _claim(letter)
        _register(store, letter)
        store.delete(key)
    except ObjectNotFound as error:
        if error.key == key:  # recovered by a concurrent sweep
            _settle_missing(key)
            return
        _keep(letter, "object_not_found", f"the block's own object is missing: {error}", outcome)
    except LithifyError as error:  # the letter is bad, or the store or the index cannot accept it now
        _keep(letter, error.code, str(error), outcome)
    else:
        outcome.recovered += 1
        DeadLetter.objects.filter(key=key, attempts=0).delete()  # it was recovered before any attempt failed
        DeadLetter.objects.filter(key=key).update(
            state=LetterState.RECOVERED, code="", reason="", last_attempt_ms=dialect.clock_ms()
        )


def claim_letter_row(key: str, named: BlockKey, *, state: LetterState, info: ObjectInfo | None = None) -> DeadLetter:
    """Return the row of a letter, locked until the end of the transaction; a missing one is created in ``state``.

    Recovery and the sweep of orphans both use it, so that only one of the two acts on an object.
    """
    now_ms = dialect.clock_ms()
    DeadLetter.objects.get_or_create(
        key=key,
        defaults={
            "shard": named.shard,
            "tenant": named.tenant,
            "ulid": named.id,
            "size_bytes": info.size if info else 0,
            "written_at_ms": round(info.modified_at * 1000) if info else now_ms,
            "state": state,
            "first_attempt_ms": now_ms,
            "last_attempt_ms": now_ms,
        },
    )
    return dialect.locked(DeadLetter.objects.filter(key=key)).get()


def _claim(letter: Letter) -> None:
    """Mark the letter's row as waiting. Raises _LetterKept while a sweep deletes the object."""
    with transaction.atomic(durable=True):
        row = claim_letter_row(letter.info.key, letter.named, state=LetterState.WAITING, info=letter.info)
        is_sweeping = row.last_attempt_ms > dialect.clock_ms() - SWEEP_MS
        if row.state != LetterState.SWEPT or not is_sweeping:
            DeadLetter.objects.filter(id=row.id).update(state=LetterState.WAITING)
            return
    raise _LetterKept(SWEPT, "the object it is about is being deleted as an orphan")


def _register(store: ObjectStore, letter: Letter) -> None:
    [answer] = add_blocks([_read(store, letter)], actor=ACTOR).answers
    _check_answer(answer)


def _check_answer(answer: BlockAnswer) -> None:
    if answer.error is not None:
        raise _LetterKept(answer.error.code, str(answer.error))
    if answer.status is AddStatus.DIFFERING:
        raise _LetterKept("differing_content", "a block of this id with other content was accepted before")


def _read(store: ObjectStore, letter: Letter) -> BlockRegistration:
    """Return the registration in a letter, checked against its name and its object."""
    if letter.info.size > METADATA_BYTES_MAX:
        raise _LetterKept("limit_exceeded", f"{letter.info.size} bytes are more than any metadata has")
    data = store.get(letter.info.key)
    if len(data) != letter.info.size:
        raise _LetterKept("read_error", f"{len(data)} of {letter.info.size} bytes could be read")
    meta = decode_metadata(data)
    in_metadata = (meta.shard, meta.tenant or ANONYMOUS, meta.id)
    if in_metadata != (letter.named.shard, letter.named.tenant or ANONYMOUS, letter.named.id):
        raise _LetterKept("bad_key", f"the key contradicts the metadata, which says {in_metadata}")
    object_key = block_key(meta.shard, meta.tenant, meta.compaction_level, meta.id)
    size = store.head(object_key).size
    if meta.size not in (0, size):
        raise _LetterKept("bad_size", f"the object has {size} bytes, its metadata says {meta.size}")
    return BlockRegistration(meta=meta, metadata=encode_metadata(meta), object_key=object_key, size_bytes=size)


def _keep(letter: Letter, code: str, reason: str, outcome: RecoveryOutcome) -> None:
    outcome.kept.append((letter.info.key, code))
    with transaction.atomic():
        row = claim_letter_row(letter.info.key, letter.named, state=LetterState.WAITING, info=letter.info)
        DeadLetter.objects.filter(id=row.id).update(
            state=row.state if code == SWEPT else LetterState.WAITING,
            attempts=row.attempts + 1,
            last_attempt_ms=row.last_attempt_ms if code == SWEPT else dialect.clock_ms(),
            code=code[:50],
            reason=reason.replace("\0", "?")[:REASON_MAX],
        )


def _count(outcome: RecoveryOutcome) -> None:
    found = {"recovered": outcome.recovered, "empty": outcome.empty, "kept": len(outcome.kept)}
    for status, count in (found | {"stray": len(outcome.stray)}).items():
        count_events(f"{LETTERS}{status}", count)


def _settle_missing(key: str) -> None:
    """Record that a waiting letter is missing in the bucket: it was recovered or removed."""
    DeadLetter.objects.filter(key=key, state=LetterState.WAITING).update(
        state=LetterState.RECOVERED, last_attempt_ms=dialect.clock_ms()
    )
