"""Compare bucket and index both ways, and sweep unreferenced objects. The comparison reads both in key order.

It may take hours, while blocks are added, merged and deleted: the index is queried again before a difference is
reported.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from django.db import transaction

from engine.core import ulids
from engine.core.checksums import crc32c
from engine.core.errors import BadBlockName, LithifyError
from engine.formats.profile_block.container.object_names import (
    BLOCKS,
    SEGMENTS,
    BlockKey,
    dead_letter_key,
    parse_block_key,
)
from engine.storage.model import ObjectInfo, ObjectNotFound, ObjectStore
from webadmin.base.access.services import record_audit
from webadmin.base.database import dialect
from webadmin.lanes.profiles.bucket.lineage import name_of
from webadmin.lanes.profiles.bucket.lineage_objects import LineageRecord, read_records
from webadmin.lanes.profiles.errors import SweepRefused
from webadmin.lanes.profiles.models import Block, DeadLetter, LetterState, LineageMark
from webadmin.lanes.profiles.services.recover_letters import claim_letter_row
from webadmin.lanes.profiles.states import LIVE_STATES, BlockState
from webadmin.schedule.services.guard_deletions import allow_deletions, behind_text, positions_ahead

GRACE_HOURS = 24
ORPHANS_PER_SWEEP = 10_000
RECHECKED_AT_ONCE = 500
DELETIONS_PER_POSITION = 500
ORPHANS_TOLERATED = 100
ORPHANS_SHARE_MAX = 0.5
"""A larger share of the bucket is not left by crashes: the index is incomplete."""
LETTERED = "a dead letter names it"
KNOWN = "the index knows its id"
UNKNOWN_SEGMENT = "a segment that may have been acknowledged: fsck --repair adopts it; never deleted automatically"
MERGED_SEGMENT = "a segment that a record says was merged or removed; sweep_orphans --segments deletes it"


class Finding(enum.StrEnum):
    """Kind of difference between bucket and index."""

    MISSING = "missing"  # a live block has no object: queries and merges will fail
    SIZE = "size"  # the object's length differs from the index
    CHECKSUM = "checksum"  # its bytes differ from what was written
    UNREADABLE = "unreadable"  # the store cannot return it
    UNKNOWN = "unknown"  # the index has no block for it: an orphan, or one to import

    @property
    def is_damage(self) -> bool:
        return self is not Finding.UNKNOWN


class Difference(NamedTuple):
    """One difference."""

    finding: Finding
    key: str
    detail: str


class _Row(NamedTuple):
    key: str
    size: int
    checksum: int | None
    is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOutcome:
    """The keys that were deleted (or would be), and the unreferenced ones that are kept, with the reason.

    ``refusal`` is the reason why only a forced run would delete; "" if there is none.
    """

    swept: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]
    refusal: str = ""


def compare_bucket(store: ObjectStore, *, is_deep: bool = False) -> Iterator[Difference]:
    """Yield every difference in key order; ``is_deep`` reads every live object and checks its checksum."""
    found = _walk(store, is_deep=is_deep)
    while part := list(islice(found, RECHECKED_AT_ONCE)):
        yield from _still_there(part)


def _walk(store: ObjectStore, *, is_deep: bool) -> Iterator[Difference]:
    rows, objects = _rows(), (info for info in store.list() if _is_block(info.key))
    row, info = next(rows, None), next(objects, None)
    while row or info:
        if row and (info is None or row.key.encode() < info.key.encode()):
            if row.is_live:
                yield Difference(Finding.MISSING, row.key, "the index has a live block here")
            row = next(rows, None)
        elif info and (row is None or info.key.encode() < row.key.encode()):
            yield Difference(Finding.UNKNOWN, info.key, f"{info.size} bytes that the index does not name")
            info = next(objects, None)
        elif row and info:
            if row.is_live:
                yield from _differences(store, row, info, is_deep)
            row, info = next(rows, None), next(objects, None)


def sweep_orphans(
    *,
    store: ObjectStore,
    actor: str,
    grace_hours: float = GRACE_HOURS,
    is_dry_run: bool = False,
    is_forced: bool = False,
    has_segments: bool = False,
    orphans_tolerated: int = ORPHANS_TOLERATED,
) -> SweepOutcome:
    """Delete unreferenced objects of our own layout that are older than the grace period, by id and by the store.

    Segments are kept unless ``has_segments``: one that is unknown to the index may have been acknowledged to its
    sender. Up to ``orphans_tolerated`` objects may be most of the bucket: an operator has confirmed it. Raises
    SweepRefused if so much of the bucket is unknown that the index may be incomplete, and LogBehind if the database
    went back in time; a dry run reports it and continues.
    """
    now_ms = dialect.clock_ms()
    before_ms = now_ms - round(max(1.0, grace_hours) * 3_600_000)
    differences = [d for d in compare_bucket(store) if d.finding is Finding.UNKNOWN]
    count = Block.objects.exclude(state=BlockState.DELETED).count()
    share = len(differences) / max(1, len(differences) + count)
    refusal = ""
    if len(differences) > orphans_tolerated and share > ORPHANS_SHARE_MAX and not is_forced:
        refusal = (
            f"{len(differences)} objects are unknown and {count} blocks known: "
            "run rebuild_index, look at a dry run, then --force"
        )
    if refusal and not is_dry_run:
        raise SweepRefused(refusal)
    if is_dry_run:
        refusal = refusal or _why_behind(store)
    else:
        allow_deletions(store=store)
    swept: list[str] = []
    kept: list[tuple[str, str]] = []
    for difference in differences:
        if len(swept) == ORPHANS_PER_SWEEP:
            break
        reason = _why_kept(store, difference.key, before_ms, has_segments)
        if not reason and not is_dry_run:
            reason = _delete_orphan(store, difference.key)
        if reason:
            kept.append((difference.key, reason))
            continue
        swept.append(difference.key)
        if not is_dry_run and len(swept) % DELETIONS_PER_POSITION == 0:
            allow_deletions(store=store)
    kept = _with_merged_segments(store, kept)
    if not is_dry_run:
        segments = sum(reason == UNKNOWN_SEGMENT for _, reason in kept)
        LineageMark.objects.update_or_create(id=1, defaults={"unknown_segments": segments})
    if swept and not is_dry_run:
        record_audit(actor=actor, action="sweep_orphans", target=f"{len(swept)} objects", detail={"keys": swept[:1000]})
    return SweepOutcome(swept=tuple(swept), kept=tuple(kept), refusal=refusal)


def _still_there(found: Iterable[Difference]) -> Iterator[Difference]:
    """Drop differences that are explained by now: blocks added or removed since the comparison began."""
    ids = {difference.key: _id_in(difference.key) for difference in found}
    wanted = sorted({block_id for block_id in ids.values() if block_id})
    rows = Block.objects.filter(ulid__in=wanted).exclude(state=BlockState.DELETED)
    states = dict(rows.values_list("object_key", "state"))
    for difference in found:
        state = states.get(difference.key)
        is_known = ids[difference.key] != ""
        is_so = state in LIVE_STATES if difference.finding.is_damage else state is None
        if is_so or not is_known:
            yield difference


def _id_in(key: str) -> str:
    """Return the block id in a key, "" if there is none."""
    block_id = key.split("/")[-2]
    try:
        ulids.parse(block_id)
    except BadBlockName:
        return ""
    return block_id


def _rows() -> Iterator[_Row]:
    rows = Block.objects.exclude(state=BlockState.DELETED).order_by("object_key")
    live = {state.value for state in LIVE_STATES}
    for key, size, checksum, state in rows.values_list("object_key", "size_bytes", "crc32c", "state").iterator():
        yield _Row(key, size, checksum, state in live)


def _is_block(key: str) -> bool:
    try:
        parse_block_key(key)
    except BadBlockName:
        parts = key.split("/")
        return len(parts) >= 2 and parts[-1] == "block.bin" and parts[0] not in (SEGMENTS, BLOCKS)
    return True


def _differences(store: ObjectStore, row: _Row, info: ObjectInfo, is_deep: bool) -> Iterator[Difference]:
    if info.size != row.size:
        yield Difference(Finding.SIZE, row.key, f"{info.size} bytes, the index says {row.size}")
    elif is_deep and row.checksum is not None:
        try:
            found = crc32c(store.get(row.key))
        except LithifyError as error:
            yield Difference(Finding.UNREADABLE, row.key, str(error))
            return
        if found != row.checksum:
            yield Difference(Finding.CHECKSUM, row.key, f"CRC32C {found:08x}, the index says {row.checksum:08x}")


def _why_kept(store: ObjectStore, key: str, before_ms: int, has_segments: bool) -> str:
    """Return why an unknown object must be kept, "" if it need not be.

    The letter is checked first, then the job, then the index: recovery registers a block before it deletes the letter,
    and a job's results are registered before it is done. This order finds every reference.
    """
    try:
        named = parse_block_key(key)
    except BadBlockName:
        return "not of our layout: written by another program"
    created_ms = ulids.time_ms(named.id)
    if created_ms >= before_ms:
        return "its id is younger than the grace"
    try:
        if store.head(key).modified_at * 1000 >= before_ms:
            return "it was written within the grace"
    except ObjectNotFound:
        return "it is gone"
    if any(True for _ in store.list(dead_letter_key(named.shard, named.tenant, named.id))):
        return LETTERED
    # A result has the shard of its job, and its id the time of the job's first source.
    first = Block.objects.made_between(created_ms, created_ms + 1).filter(state=BlockState.OWNED)
    if first.filter(owner_job__shard=named.shard).exists():
        return "a scheduled job could still name it"
    if _is_known(named):
        return KNOWN
    return UNKNOWN_SEGMENT if named.is_segment and not has_segments else ""


def _with_merged_segments(store: ObjectStore, kept: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Mark the segments that a record in the bucket names as merged: they need not be imported."""
    if all(reason != UNKNOWN_SEGMENT for _, reason in kept):
        return list(kept)
    merged = {name for _, record in read_records(store) if isinstance(record, LineageRecord) for name in record.sources}
    return [
        (key, MERGED_SEGMENT if reason == UNKNOWN_SEGMENT and name_of(key) in merged else reason)
        for key, reason in kept
    ]


def _delete_orphan(store: ObjectStore, key: str) -> str:
    """Delete an object, unless a dead letter about it is being or was recovered; return the reason for keeping it.

    The row of its letter is claimed first. Recovery writes the same row before it reads the object, so that only one of
    the two proceeds.
    """
    named = parse_block_key(key)
    letter = dead_letter_key(named.shard, named.tenant, named.id)
    own = DeadLetter.objects.filter(key=letter)
    with transaction.atomic(durable=True):
        row = claim_letter_row(letter, named, state=LetterState.SWEPT)
        if row.state == LetterState.WAITING:
            return LETTERED
        is_known = _is_known(named)
        if not is_known:
            own.update(state=LetterState.SWEPT, last_attempt_ms=dialect.clock_ms())
    if not is_known:
        store.delete(key)
    if row.state == LetterState.SWEPT:
        own.filter(state=LetterState.SWEPT).delete()
    else:  # recovered or discarded earlier: the row records by whom
        own.update(state=row.state)
    return KNOWN if is_known else ""


def _is_known(named: BlockKey) -> bool:
    return Block.objects.filter(shard=named.shard, ulid=named.id).exclude(state=BlockState.DELETED).exists()


def _why_behind(store: ObjectStore) -> str:
    """Return why positions in the bucket would refuse a sweep now; nothing is written."""
    ahead = positions_ahead(store)
    return behind_text([(position.epoch, position.command_index) for position in ahead]) if ahead else ""
