"""Rebuild the index from the bucket alone, into an empty or incomplete index; run it again to resume.

``bucket_lineage`` decides which blocks count. Before the first one is registered, the log is moved beyond all fencing
tokens of the lost index: a worker with one of them is refused, and no name of a result is used twice.

It also repairs an index that went back in time: missing blocks are registered, and blocks that records name as merged
are removed. After that the positions in the bucket that are ahead of the index are removed, and deletions continue;
they stay suspended while something could not be read that another run may find. In a bucket that does not belong to
this installation, positions are left unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from django.conf import settings

from engine.core.errors import LithifyError
from engine.storage import StorageError, cached_store
from engine.storage.model import ObjectInfo, ObjectStore
from webadmin.lanes.profiles.bucket.lineage import BucketLineage, name_of
from webadmin.lanes.profiles.bucket.scan import FoundBlock, describe_block, find_blocks
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.services.add_blocks import add_blocks
from webadmin.lanes.profiles.services.repair_index import drop_superseded, records_to_follow
from webadmin.schedule.models import Command
from webadmin.schedule.services.guard_deletions import note_positions, positions_ahead, settle_positions
from webadmin.schedule.services.start_log import start_log_behind

BLOCKS_PER_COMMAND = 100


@dataclass(slots=True, kw_only=True)
class RebuildOutcome:
    """The results of a rebuild so far. ``left_out`` maps keys to the reason, ``bad`` are objects that cannot be read.

    ``log_starts_at`` is the first index of the log if it was moved beyond that of a lost one. ``dropped`` live blocks
    were merged or removed according to records. ``settled`` positions ahead of the log were removed; ``unsettled`` is
    why deletions stay suspended, "" if they do not.
    """

    found: int = 0
    added: int = 0
    known: int = 0
    dropped: int = 0
    settled: int = 0
    unsettled: str = ""
    log_starts_at: int | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    conflicting: list[str] = field(default_factory=list)
    bad: list[tuple[str, LithifyError]] = field(default_factory=list)

    @property
    def is_incomplete(self) -> bool:
        """Return whether something could not be read, or differs from the index."""
        return bool(self.bad or self.conflicting)


def rebuild_index(
    *, store: ObjectStore, actor: str, progress: Callable[[RebuildOutcome], None] = lambda outcome: None
) -> RebuildOutcome:
    """Register every block of the bucket that counts. ``progress`` is called after every batch.

    Raises StorageError, and BadObject for a log position in the bucket that cannot be read.
    """
    lineage = BucketLineage.read(store, records_to_follow)
    outcome = RebuildOutcome(bad=list(lineage.bad))
    known_index = max([lineage.largest_index, *(ahead.command_index for ahead in positions_ahead(store))])
    if lineage.holds_results or known_index:  # an earlier log existed
        outcome.log_starts_at = start_log_behind(known_index, actor=actor)
    is_own = store.url == cached_store(settings.OBJECT_STORE_URL).url
    if is_own:
        note_positions(store)
    outcome.dropped = drop_superseded(lineage, actor=actor)
    objects = find_blocks(store)
    while part := list(islice(objects, BLOCKS_PER_COMMAND)):
        outcome.found += len(part)
        batch = list(_wanted(store, part, lineage, outcome))
        _register(batch, outcome, actor)
        progress(outcome)
    if is_own:
        outcome.unsettled = _why_unsettled(outcome, lineage)
        if not outcome.unsettled:
            outcome.settled = settle_positions(store)
    return outcome


def _why_unsettled(outcome: RebuildOutcome, lineage: BucketLineage) -> str:
    """Return what another run may find that this one could not read; a sweep would delete it."""
    unread = sum(isinstance(error, StorageError) for _, error in outcome.bad)
    if unread or lineage.bad:
        return f"{unread} objects and {len(lineage.bad)} records of lineage could not be read: run it again"
    return ""


def _wanted(
    store: ObjectStore, part: list[tuple[str, ObjectInfo]], lineage: BucketLineage, outcome: RebuildOutcome
) -> Iterator[FoundBlock]:
    known = _known(part)
    for path_id, info in part:
        if info.key in known:
            outcome.known += 1
            continue
        if reason := lineage.why_key_is_left_out(info.key):
            outcome.left_out[info.key] = reason
            continue
        found = describe_block(store, path_id, info, {})
        if found.registration is None:
            outcome.bad.append((info.key, found.error or LithifyError("unreadable")))
        elif reason := lineage.why_left_out(found.registration.meta):
            outcome.left_out[info.key] = reason
        else:
            yield found


def _known(part: list[tuple[str, ObjectInfo]]) -> set[str]:
    """Return the keys of objects that the index already has, so that a second run is fast."""
    sizes = {info.key: info.size for _, info in part}
    rows = Block.objects.filter(object_key__in=sizes, ulid__in=[path_id for path_id, _ in part])
    shards = {name[0] for _, info in part if (name := name_of(info.key))}
    rows = rows.filter(shard__in=shards) if shards else rows
    return {key for key, size in rows.values_list("object_key", "size_bytes") if sizes[key] == size}


def _register(batch: list[FoundBlock], outcome: RebuildOutcome, actor: str) -> None:
    registrations = [found.registration for found in batch if found.registration is not None]
    if not registrations:
        return
    keys = {registration.meta.id: registration.object_key for registration in registrations}
    added = add_blocks(registrations, actor=actor, kind=Command.Kind.IMPORT_BLOCKS, any_age=True)
    outcome.added += len(added.accepted)
    outcome.known += len(added.duplicates)
    outcome.conflicting.extend(added.conflicting)
    outcome.bad.extend((keys[block_id], error) for block_id, error in added.refused)
