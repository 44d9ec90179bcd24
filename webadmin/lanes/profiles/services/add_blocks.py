"""Register new blocks: one command per batch, which does not wait for the head of the log.

An id that was accepted before has no effect, whatever became of its block: a writer without an answer sends again.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db import DatabaseError, transaction

from engine.core.errors import LithifyError
from webadmin.base.access.refusals import count_refusals
from webadmin.base.database.dialect import is_contention
from webadmin.lanes.profiles.errors import BlockRefused, IndexBusy
from webadmin.lanes.profiles.models import AcceptedId, Block
from webadmin.lanes.profiles.planning.level_policies import LevelPolicies
from webadmin.lanes.profiles.planning.level_queues import QueueChanges, settle_queues
from webadmin.lanes.profiles.registration import CLOCK_CODES, LEDGER_MS, BlockRegistration, check_registration
from webadmin.lanes.profiles.services.delete_requests import reopen_requests
from webadmin.lanes.profiles.services.event_totals import REPEATED, count_events
from webadmin.lanes.profiles.services.insert_blocks import (
    InsertMoment,
    InternedNames,
    insert_blocks,
    intern_names,
    record_ids,
)
from webadmin.schedule.command_log import CommandTime, read_time, write_command
from webadmin.schedule.models import Command

log = logging.getLogger(__name__)

BATCH_MAX = 500
"""Blocks per command: queues are locked for the length of its transaction."""
TRIES_MAX = 3
NO_COMMAND = 0

BlockName = tuple[int, str]
"""Shard and id."""


class AddStatus(enum.StrEnum):
    """Result of registering one block of a batch."""

    ACCEPTED = "accepted"  # it is live now
    DUPLICATE = "duplicate"  # accepted before with the same content: no change
    DIFFERING = "differing"  # accepted before with other content: the first one is kept
    REFUSED = "refused"  # invalid; the error has the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockAnswer:
    """Result of one block; ``error`` is set if it was refused."""

    id: str
    status: AddStatus
    error: LithifyError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOutcome:
    """Results of the blocks, in the order given. ``conflicting`` ids were accepted before with other content."""

    command_index: int | None
    answers: tuple[BlockAnswer, ...] = ()

    def _with(self, status: AddStatus) -> tuple[str, ...]:
        return tuple(answer.id for answer in self.answers if answer.status is status)

    @property
    def accepted(self) -> tuple[str, ...]:
        return self._with(AddStatus.ACCEPTED)

    @property
    def duplicates(self) -> tuple[str, ...]:
        return self._with(AddStatus.DUPLICATE)

    @property
    def conflicting(self) -> tuple[str, ...]:
        return self._with(AddStatus.DIFFERING)

    @property
    def refused(self) -> tuple[tuple[str, LithifyError], ...]:
        return tuple((answer.id, answer.error) for answer in self.answers if answer.error is not None)


def add_blocks(
    registrations: Sequence[BlockRegistration],
    *,
    actor: str,
    kind: Command.Kind = Command.Kind.ADD_BLOCKS,
    any_age: bool = False,
) -> AddOutcome:
    """Make new blocks live and queue them. A refused block does not affect the others of the batch.

    ``any_age`` accepts ids older than the ledger; only an import that reads the bucket may use it. Raises IndexBusy if
    concurrent transactions hold the locks of this batch for too long.
    """
    assert len(registrations) <= BATCH_MAX, "split the batch"
    time = read_time()
    refusals = _without_repetitions(registrations, _refusals(registrations, time, any_age))
    fitting: dict[BlockName, BlockRegistration] = {}
    for registration, refusal in zip(registrations, refusals, strict=True):
        if refusal is None:
            fitting.setdefault((registration.meta.shard, registration.meta.id), registration)
    count_refusals([error for error in refusals if error], actor=actor, at_ms=time.wall_ms)
    index, known = _try_to_add(fitting, time, actor, kind) if fitting else (None, {})
    outcome = AddOutcome(command_index=index, answers=_answers(registrations, refusals, fitting, known))
    count_events(f"{REPEATED}same", len(outcome.duplicates))
    count_events(f"{REPEATED}differing", len(outcome.conflicting))
    log.info(
        "blocks_added command=%s accepted=%d duplicates=%d conflicting=%d refused=%d",
        outcome.command_index,
        len(outcome.accepted),
        len(outcome.duplicates),
        len(outcome.conflicting),
        len(outcome.refused),
    )
    return outcome


def forecast_blocks(registrations: Sequence[BlockRegistration]) -> tuple[BlockAnswer, ...]:
    """Return what ``add_blocks`` would return now; nothing is written and no refusal is counted."""
    refusals = _without_repetitions(registrations, _refusals(registrations, read_time(), any_age=False))
    fitting: dict[BlockName, BlockRegistration] = {}
    for registration, refusal in zip(registrations, refusals, strict=True):
        if refusal is None:
            fitting.setdefault((registration.meta.shard, registration.meta.id), registration)
    known = _known_before(fitting, NO_COMMAND) if fitting else {}
    return _answers(registrations, refusals, fitting, known)


def _refusals(
    registrations: Iterable[BlockRegistration], time: CommandTime, any_age: bool
) -> list[BlockRefused | None]:
    found: list[BlockRefused | None] = []
    for registration in registrations:
        try:
            check_registration(
                registration,
                remembered_from_ms=None if any_age else time.wall_ms - LEDGER_MS,
                now_ms=None if any_age else time.wall_ms,
            )
            found.append(None)
        except BlockRefused as error:
            found.append(error)
    return found


def _without_repetitions(
    registrations: Sequence[BlockRegistration], refusals: Sequence[BlockRefused | None]
) -> list[BlockRefused | None]:
    """Remove time-dependent refusals of blocks that were accepted before."""
    untimely = {
        (registration.meta.shard, registration.meta.id): registration
        for registration, refusal in zip(registrations, refusals, strict=True)
        if refusal is not None and refusal.code in CLOCK_CODES
    }
    known = _known_before(untimely, NO_COMMAND) if untimely else {}
    return [
        None if (registration.meta.shard, registration.meta.id) in known else refusal
        for registration, refusal in zip(registrations, refusals, strict=True)
    ]


def _try_to_add(
    fitting: dict[BlockName, BlockRegistration], time: CommandTime, actor: str, kind: Command.Kind
) -> tuple[int | None, dict[BlockName, str]]:
    """Add the new blocks; return the command, if any was added, and the digests of those known before."""
    interned = intern_names(list(fitting.values()))
    for attempt in range(TRIES_MAX):
        try:
            with transaction.atomic(durable=True):
                index, known = _add(fitting, interned, time, actor=actor, kind=kind)
                if len(known) == len(fitting):  # no change, so no entry is written to the log
                    transaction.set_rollback(True)
                    index = None
            return index, known
        except DatabaseError as error:
            if not is_contention(error):
                raise
            log.info("add_lost_a_race attempt=%d", attempt + 1)
            busy = error
    raise IndexBusy("too many others add the same blocks at the same time; send them again") from busy


def _add(
    fitting: dict[BlockName, BlockRegistration],
    interned: InternedNames,
    time: CommandTime,
    *,
    actor: str,
    kind: Command.Kind,
) -> tuple[int | None, dict[BlockName, str]]:
    index = write_command(kind=kind, actor=actor, time=time, change_set={"added": _described(fitting.values())})
    # It is unknown when imported data was first accepted: all delete requests apply to it.
    is_import = kind == Command.Kind.IMPORT_BLOCKS
    moment = InsertMoment(command_index=index, command_time_ms=time.now_ms, masks_applied=0 if is_import else None)
    # In sorted order, so that two batches with the same ids never deadlock.
    record_ids([fitting[name] for name in sorted(fitting)], moment)
    known = _known_before(fitting, index)
    fresh = [registration for name, registration in fitting.items() if name not in known]
    if known and fresh:
        Command.objects.filter(index=index).update(change_set={"added": _described(fresh)})
    changes = QueueChanges()
    insert_blocks(fresh, interned, moment, changes)
    if is_import:
        reopen_requests({dataset.tenant for registration in fresh for dataset in registration.meta.datasets})
    settle_queues(changes, LevelPolicies())
    return index, known


def _known_before(fitting: dict[BlockName, BlockRegistration], index: int) -> dict[BlockName, str]:
    """Return the digests of the ids that the ledger, or a block older than the ledger, had before this command."""
    ids = [ulid for _, ulid in fitting]
    known: dict[BlockName, str] = {}
    if AcceptedId.objects.filter(command_index=index).count() < len(fitting):
        entries = AcceptedId.objects.filter(ulid__in=ids).exclude(command_index=index)
        rows = entries.values_list("shard", "ulid", "content_digest")
        known = {(shard, ulid): digest for shard, ulid, digest in rows if (shard, ulid) in fitting}
    for shard, ulid, metadata, size in Block.objects.filter(ulid__in=ids).values_list(
        "shard", "ulid", "metadata", "size_bytes"
    ):
        if (shard, ulid) in fitting and (shard, ulid) not in known:
            registration = fitting[shard, ulid]
            is_same = bytes(metadata) == registration.metadata and size == registration.size_bytes
            known[shard, ulid] = registration.content_digest() if is_same else ""
    return known


def _answers(
    registrations: Sequence[BlockRegistration],
    refusals: Sequence[BlockRefused | None],
    fitting: dict[BlockName, BlockRegistration],
    known: dict[BlockName, str],
) -> tuple[BlockAnswer, ...]:
    answers = []
    for registration, refusal in zip(registrations, refusals, strict=True):
        name = (registration.meta.shard, registration.meta.id)
        if refusal is not None:
            status = AddStatus.REFUSED
        elif name not in known and fitting[name] is registration:
            status = AddStatus.ACCEPTED
        else:
            first = known[name] if name in known else fitting[name].content_digest()
            status = AddStatus.DUPLICATE if first == registration.content_digest() else AddStatus.DIFFERING
        answers.append(BlockAnswer(id=registration.meta.id, status=status, error=refusal))
    return tuple(answers)


def _described(registrations: Iterable[BlockRegistration]) -> list[dict[str, object]]:
    """Return the log entry of new blocks; their metadata is in the block rows."""
    return [
        {
            "id": registration.meta.id,
            "tenant": registration.meta.tenant,
            "shard": registration.meta.shard,
            "level": registration.meta.compaction_level,
            "size": registration.size_bytes,
            "key": registration.object_key,
        }
        for registration in registrations
    ]
