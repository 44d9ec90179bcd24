"""Block deletions while the log is behind a position in the bucket, and write its own position there.

Processes delete objects on the basis of the database. A database that was restored to an earlier time lacks the objects
written since, and still refers to those deleted since. So before each batch of deletions the position of the log is
written to the bucket and compared with those in the bucket; while one of them is not in this log, nothing is deleted.
The process that first finds one continues the log beyond all indexes that the lost history may have issued.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence

from django.conf import settings
from django.db import transaction
from django.db.models import Value
from django.db.models.functions import Greatest

from engine.storage import cached_store
from engine.storage.model import ObjectStore
from webadmin.base.database import dialect
from webadmin.schedule.command_log import INDEX_MARGIN, continue_log, move_head, take_head, write_command
from webadmin.schedule.errors import LogBehind
from webadmin.schedule.log_position import LogPosition, entry_digest, read_positions
from webadmin.schedule.models import EPOCH_MAX, AheadPosition, Command, PositionMark

log = logging.getLogger(__name__)

ACTOR = "service"
DELETIONS_PER_QUESTION = 500
SETTLED_MS = 3_600_000
"""A position of an earlier epoch that was not written for this long belongs to no running process."""


def allow_deletions(*, store: ObjectStore | None = None, mark: bool = False) -> None:
    """Write the position of the log to the bucket; return if objects may be deleted now.

    ``mark`` writes an entry first: for deletions that follow from rows whose changes are no commands. ``store`` is the
    installation's own by default, also for objects in other stores. Raises LogBehind, StorageError, BadObject: then
    nothing may be deleted.
    """
    store = store or cached_store(settings.OBJECT_STORE_URL)
    found, ahead = _look(store)
    if mark:
        _write_mark()
    own = write_position(store)
    if own is not None and not ahead:
        _remove_earlier(store, found, own)
    if ahead:
        raise LogBehind(behind_text([(position.epoch, position.command_index) for position in ahead]))


class DeletionBatches:
    """Calls ``allow_deletions`` again before each batch of a long series of deletions."""

    def __init__(self, *, store: ObjectStore | None = None) -> None:
        self._store = store
        self._left = 0

    def allow_next(self) -> None:
        """Return if the next object may be deleted. Raises the errors of ``allow_deletions``."""
        if not self._left:
            allow_deletions(store=self._store)
            self._left = DELETIONS_PER_QUESTION
        self._left -= 1


def behind_text(positions: Sequence[tuple[str, int]]) -> str:
    """Return the reason why nothing is deleted, for positions given as epoch and command index."""
    epoch, index = max(positions, key=lambda position: position[1])
    more = f" and {len(positions) - 1} more" if len(positions) > 1 else ""
    return (
        f"the bucket holds position {index} of epoch {epoch}{more}, which is not in this command log: the database "
        "went back in time, or another database uses this bucket; nothing is deleted until fsck --repair has run"
    )


def log_behind() -> str:
    """Return why nothing is deleted, by the last check of the bucket; "" if the log was not behind."""
    rows = list(AheadPosition.objects.values_list("epoch", "command_index"))
    return behind_text(rows) if rows else ""


def positions_ahead(store: ObjectStore) -> list[LogPosition]:
    """Return the positions in the bucket that are not in this log. Raises StorageError, BadObject."""
    return _not_contained(list(read_positions(store)))


def note_own_positions() -> None:
    """Call ``note_positions`` for the installation's own store."""
    note_positions(cached_store(settings.OBJECT_STORE_URL))


def note_positions(store: ObjectStore) -> list[LogPosition]:
    """Return the positions in the bucket that are not in this log, and store a row for each.

    If one is new, the log is first continued beyond it. Raises StorageError, BadObject.
    """
    return _look(store)[1]


def _look(store: ObjectStore) -> tuple[list[LogPosition], list[LogPosition]]:
    """Return all positions in the bucket, and those that are not in this log."""
    found = list(read_positions(store))
    ahead = _not_contained(found)
    known = set(AheadPosition.objects.values_list("epoch", flat=True))
    if {position.epoch for position in ahead} == known:
        return found, ahead
    with transaction.atomic(durable=True):
        take_head()
        known = set(AheadPosition.objects.values_list("epoch", flat=True))
        ahead = _not_contained(found)
        fresh = [position for position in ahead if position.epoch not in known]
        AheadPosition.objects.exclude(epoch__in=[position.epoch for position in ahead]).delete()
        if fresh:
            behind = max(position.command_index for position in fresh)
            _continue_behind(behind)
            now_ms = dialect.clock_ms()
            AheadPosition.objects.bulk_create(
                AheadPosition(
                    epoch=position.epoch,
                    command_index=position.command_index,
                    written_at_ms=position.written_at_ms,
                    found_at_ms=now_ms,
                )
                for position in fresh
            )
    return found, ahead


def _remove_earlier(store: ObjectStore, found: Sequence[LogPosition], own: LogPosition) -> None:
    """Remove positions of earlier epochs that this log contains: ``own`` replaces them.

    Each restart of PostgreSQL begins an epoch, and the entry that a position names is deleted with the log's history:
    then the log would wrongly seem to have lost it.
    """
    for position in found:
        if position.epoch != own.epoch and position.written_at_ms < own.written_at_ms - SETTLED_MS:
            store.delete(position.key)


def _continue_behind(behind: int) -> None:
    last = Command.objects.order_by("-index").values_list("index", flat=True).first() or 0
    if last < behind + INDEX_MARGIN:  # otherwise a rebuild of the index has continued it already
        last = continue_log(behind, actor=ACTOR, why="a position in the bucket is not in this log")
    log.error("log_behind position=%d continued_at=%d", behind, last)


def write_position(store: ObjectStore) -> LogPosition | None:
    """Write the last entry of the log to the bucket once it is durable; return it, None for an empty log.

    Of concurrent writers the one with the highest index wins: each claims its index in the database before it writes,
    and writes again if a higher one was claimed meanwhile. Raises StorageError.
    """
    last = Command.objects.order_by("-index").first()
    position = None
    epoch = _epoch()
    while last is not None:
        PositionMark.objects.update(claimed_index=Greatest("claimed_index", Value(last.index)))
        dialect.wait_for_disk()  # the bucket must not hold an entry that a crash can lose
        position = LogPosition(
            epoch=epoch, command_index=last.index, entry=entry_digest(last), written_at_ms=dialect.clock_ms()
        )
        store.put(position.key, position.encode())
        last = Command.objects.filter(
            index__gt=last.index, index__in=PositionMark.objects.values("claimed_index")
        ).first()
    return position


def settle_positions(store: ObjectStore) -> int:
    """Remove the positions that this log does not contain, after the index was repaired; return how many.

    Raises StorageError, BadObject.
    """
    ahead = note_positions(store)
    write_position(store)  # first, so that there is always a position
    for position in ahead:
        store.delete(position.key)
    note_positions(store)
    return len(ahead)


def _not_contained(positions: Sequence[LogPosition]) -> list[LogPosition]:
    rows = Command.objects.filter(index__in={position.command_index for position in positions})
    own = {command.index: entry_digest(command) for command in rows}
    return [position for position in positions if own.get(position.command_index) != position.entry]


def _epoch() -> str:
    """Return the epoch of this log; create it if there is none."""
    PositionMark.objects.get_or_create(id=1)
    PositionMark.objects.filter(epoch="").update(epoch=secrets.token_hex(EPOCH_MAX // 2))
    return PositionMark.objects.values_list("epoch", flat=True).get()


def _write_mark() -> None:
    """Write an entry that changes nothing: a log that contains it contains all earlier commits."""
    with transaction.atomic(durable=True):
        head, time = take_head()
        index = write_command(kind=Command.Kind.ADVANCE_CLOCK, actor=ACTOR, time=time, change_set={})
        move_head(index, time, live_jobs=head.live_job_count)
