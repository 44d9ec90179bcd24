"""Registers new blocks: one command per batch, which does not wait for the head of the log.

An id that was accepted before changes nothing, whatever became of its block: a writer that got no answer sends again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from django.db import transaction

from engine.errors import LithifyError
from webadmin.index.errors import BlockRefused
from webadmin.index.models import AcceptedId, Block
from webadmin.index.registration import LEDGER_MS, BlockRegistration, check_registration
from webadmin.index.services.insert_blocks import InsertMoment, InternedNames, insert_blocks, intern_names, ledger_rows
from webadmin.schedule.command_log import CommandTime, read_time, write_command
from webadmin.schedule.level_queues import QueueChanges, settle_queues
from webadmin.schedule.models import Command
from webadmin.schedule.queries import level_policies

log = logging.getLogger(__name__)

BATCH_MAX = 500
"""Blocks per command: a queue is locked for the length of its transaction."""

BlockName = tuple[int, str]
"""Shard and id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOutcome:
    """What became of each block, by id. ``conflicting`` ids were accepted before with other content: the first wins."""

    command_index: int | None
    accepted: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    conflicting: tuple[str, ...] = ()
    refused: tuple[tuple[str, LithifyError], ...] = ()


def add_blocks(
    registrations: Sequence[BlockRegistration],
    *,
    actor: str,
    kind: Command.Kind = Command.Kind.ADD_BLOCKS,
    any_age: bool = False,
) -> AddOutcome:
    """Make new blocks live and queue them. A block that is refused does not stop the others of the batch.

    ``any_age`` accepts ids older than the ledger remembers; only an import that looks at the bucket may do that.
    """
    assert len(registrations) <= BATCH_MAX, "split the batch"
    time = read_time()
    remembered_from_ms = None if any_age else time.wall_ms - LEDGER_MS
    fitting, refused = _sort_out(registrations, remembered_from_ms)
    if not fitting:
        return AddOutcome(command_index=None, refused=refused)
    interned = intern_names(list(fitting.values()))
    with transaction.atomic(durable=True):
        outcome = _add(fitting, interned, time, actor=actor, kind=kind)
        if not outcome.accepted:  # nothing happened, so no entry says that something did
            outcome = replace(outcome, command_index=None)
            transaction.set_rollback(True)
    log.info(
        "blocks_added command=%s accepted=%d duplicates=%d conflicting=%d refused=%d",
        outcome.command_index,
        len(outcome.accepted),
        len(outcome.duplicates),
        len(outcome.conflicting),
        len(refused),
    )
    return replace(outcome, refused=refused)


def _sort_out(
    registrations: Iterable[BlockRegistration], remembered_from_ms: int | None
) -> tuple[dict[BlockName, BlockRegistration], tuple[tuple[str, LithifyError], ...]]:
    fitting: dict[BlockName, BlockRegistration] = {}
    refused: list[tuple[str, LithifyError]] = []
    for registration in registrations:
        try:
            check_registration(registration, remembered_from_ms=remembered_from_ms)
        except BlockRefused as error:
            refused.append((registration.meta.id, error))
        else:
            fitting.setdefault((registration.meta.shard, registration.meta.id), registration)
    return fitting, tuple(refused)


def _add(
    fitting: dict[BlockName, BlockRegistration],
    interned: InternedNames,
    time: CommandTime,
    *,
    actor: str,
    kind: Command.Kind,
) -> AddOutcome:
    index = write_command(kind=kind, actor=actor, time=time, change_set={"added": _described(fitting.values())})
    moment = InsertMoment(command_index=index, command_time_ms=time.now_ms)
    AcceptedId.objects.bulk_create(ledger_rows(list(fitting.values()), moment), ignore_conflicts=True)
    known = _known_before(fitting, index)
    fresh = [registration for name, registration in fitting.items() if name not in known]
    if known and fresh:
        Command.objects.filter(index=index).update(change_set={"added": _described(fresh)})
    changes = QueueChanges()
    insert_blocks(fresh, interned, moment, changes)
    settle_queues(changes, level_policies())
    same = {name for name, digest in known.items() if digest == fitting[name].content_digest()}
    return AddOutcome(
        command_index=index,
        accepted=tuple(registration.meta.id for registration in fresh),
        duplicates=tuple(sorted(ulid for _, ulid in same)),
        conflicting=tuple(sorted(ulid for _, ulid in known.keys() - same)),
    )


def _known_before(fitting: dict[BlockName, BlockRegistration], index: int) -> dict[BlockName, str]:
    """Return the digests of those ids that the ledger, or a block that outlived its entry, knew before this command."""
    ids = [ulid for _, ulid in fitting]
    entries = AcceptedId.objects.filter(ulid__in=ids).exclude(command_index=index)
    known = {
        (entry.shard, entry.ulid): entry.content_digest for entry in entries if (entry.shard, entry.ulid) in fitting
    }
    for shard, ulid, metadata, size in Block.objects.filter(ulid__in=ids).values_list(
        "shard", "ulid", "metadata", "size_bytes"
    ):
        if (shard, ulid) in fitting and (shard, ulid) not in known:
            registration = fitting[shard, ulid]
            is_same = bytes(metadata) == registration.metadata and size == registration.size_bytes
            known[shard, ulid] = registration.content_digest() if is_same else ""
    return known


def _described(registrations: Iterable[BlockRegistration]) -> list[dict[str, object]]:
    """Return what the log keeps of new blocks; their metadata is in the block rows."""
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
