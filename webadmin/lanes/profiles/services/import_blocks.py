"""Build the index from objects that are already in a bucket. Safe to repeat: known blocks are unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from engine.core.errors import BadObject, LithifyError
from engine.formats.profile_block.model import BlockMeta
from engine.storage.model import ObjectInfo, ObjectStore
from webadmin.lanes.profiles.bucket.lineage import BucketLineage
from webadmin.lanes.profiles.bucket.scan import describe_block, find_blocks
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.registration import BlockRegistration
from webadmin.lanes.profiles.services.add_blocks import add_blocks
from webadmin.schedule.models import Command
from webadmin.schedule.services.start_log import start_log_behind

BLOCKS_PER_COMMAND = 100


@dataclass(slots=True, kw_only=True)
class ImportOutcome:
    """The results of an import so far.

    ``bad`` are the objects that were skipped and the reasons; ``conflicting`` ids are known with other content, which
    was kept; ``superseded`` maps keys to the reason why other objects contain their data.
    """

    found: int = 0
    imported: int = 0
    known: int = 0
    left_out: int = 0
    superseded: dict[str, str] = field(default_factory=dict)
    conflicting: list[str] = field(default_factory=list)
    bad: list[tuple[str, LithifyError]] = field(default_factory=list)


def import_blocks(
    *,
    store: ObjectStore,
    actor: str,
    side_file: Iterable[BlockMeta] = (),
    tenants: frozenset[str] = frozenset(),
    prefix: str = "",
    is_trusting: bool = False,
    progress: Callable[[ImportOutcome], None] = lambda outcome: None,
) -> ImportOutcome:
    """Register every block object in the store, or those with data of ``tenants``; ids of any age are accepted.

    Of a merge's sources and its results one side is registered (``bucket_lineage``), unless ``is_trusting``.
    ``side_file`` has the metadata of objects without a footer, found by the id in their path. ``progress`` is called
    after every batch.
    """
    described = {meta.id: meta for meta in side_file}
    outcome, missing = ImportOutcome(), set(described)
    lineage = BucketLineage.read(store)
    outcome.bad += lineage.bad
    if lineage.largest_index:
        start_log_behind(lineage.largest_index, actor=actor)
    batch: list[BlockRegistration] = []
    for path_id, info in find_blocks(store, prefix):
        missing.discard(path_id)
        outcome.found += 1
        found = describe_block(store, path_id, info, described)
        if found.registration is None and _is_known(path_id, info):
            outcome.known += 1
        elif found.registration is None:
            outcome.bad.append((found.key, found.error or LithifyError("unreadable")))
        elif tenants and tenants.isdisjoint(d.tenant for d in found.registration.meta.datasets):
            outcome.left_out += 1
        elif not is_trusting and (reason := _why_superseded(lineage, found.registration)):
            outcome.superseded[found.key] = reason
        else:
            batch.append(found.registration)
        if len(batch) == BLOCKS_PER_COMMAND:
            _register(batch, outcome, actor)
            batch = []
            progress(outcome)
    _register(batch, outcome, actor)
    for block_id in sorted(missing):
        outcome.bad.append(
            (block_id, BadObject("metadata_file", -1, "no object in the bucket has this id in its path"))
        )
    progress(outcome)
    return outcome


def _why_superseded(lineage: BucketLineage, registration: BlockRegistration) -> str:
    reason = lineage.why_left_out(registration.meta)
    if not reason:
        return ""
    known = Block.objects.filter(
        shard=registration.meta.shard, ulid=registration.meta.id, size_bytes=registration.size_bytes
    )
    return "" if known.exists() else reason  # blocks in the index are counted as known


def _is_known(path_id: str, info: ObjectInfo) -> bool:
    """Return whether an earlier import, with another side file, registered this object."""
    return Block.objects.filter(ulid=path_id, object_key=info.key, size_bytes=info.size).exists()


def _register(batch: list[BlockRegistration], outcome: ImportOutcome, actor: str) -> None:
    if not batch:
        return
    keys = {registration.meta.id: registration.object_key for registration in batch}
    added = add_blocks(batch, actor=actor, kind=Command.Kind.IMPORT_BLOCKS, any_age=True)
    outcome.imported += len(added.accepted)
    outcome.known += len(added.duplicates)
    outcome.conflicting.extend(added.conflicting)
    outcome.bad.extend((keys[block_id], error) for block_id, error in added.refused)
