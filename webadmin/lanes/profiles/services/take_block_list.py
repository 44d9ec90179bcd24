"""Register the valid blocks of a writer's list in one command; each entry gets its own answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from engine.storage import ObjectNotFound, ObjectStore
from webadmin.base.access.refusals import count_refusals
from webadmin.base.database import dialect
from webadmin.lanes.profiles.block_list import OfferedBlock, read_block_list
from webadmin.lanes.profiles.errors import BlockRefused
from webadmin.lanes.profiles.models import Dataset
from webadmin.lanes.profiles.registration import BlockRegistration
from webadmin.lanes.profiles.services.add_blocks import BATCH_MAX, AddStatus, BlockAnswer, add_blocks

HEADS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenList:
    """One answer per entry, in the order sent."""

    command_index: int | None
    answers: tuple[BlockAnswer, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the answers as JSON."""
        return {"command_index": self.command_index, "blocks": [_to_json(answer) for answer in self.answers]}


def take_block_list(
    body: bytes, *, actor: str, store: ObjectStore | None = None, tenants: Collection[str] = ()
) -> TakenList:
    """Register the blocks of a protobuf BlockMetaList. With ``tenants``, only blocks with data of these.

    A sender that is limited to tenants must not learn which ids others use: its objects have to be in ``store``, and an
    id of another tenant's block is refused as if its object were missing. Raises InvalidBatch if the body cannot be
    read, StorageError.
    """
    offered = read_block_list(body, count_max=BATCH_MAX, tenants=tenants)
    if tenants:
        assert store is not None, "objects of a limited sender are looked for"
        offered = _without_missing(offered, store)
    unreadable = [offer.error for offer in offered if offer.error is not None]
    if unreadable:
        count_refusals(unreadable, actor=actor, at_ms=dialect.clock_ms())
    outcome = add_blocks([offer.registration for offer in offered if offer.registration is not None], actor=actor)
    added = iter(_without_foreign(outcome.answers, offered, tenants) if tenants else outcome.answers)
    answers = tuple(
        BlockAnswer(id=offer.id, status=AddStatus.REFUSED, error=offer.error) if offer.error else next(added)
        for offer in offered
    )
    return TakenList(command_index=outcome.command_index, answers=answers)


def _without_missing(offered: list[OfferedBlock], store: ObjectStore) -> list[OfferedBlock]:
    """Refuse the blocks that have no object of their size in the store."""

    def checked(offer: OfferedBlock) -> OfferedBlock:
        registration = offer.registration
        if registration is None:
            return offer
        try:
            is_there = store.head(registration.object_key).size == registration.size_bytes
        except ObjectNotFound:
            is_there = False
        return offer if is_there else OfferedBlock(id=offer.id, error=_missing(registration))

    with ThreadPoolExecutor(HEADS_AT_ONCE) as threads:
        return list(threads.map(checked, offered))


def _without_foreign(
    answers: Sequence[BlockAnswer], offered: Sequence[OfferedBlock], tenants: Collection[str]
) -> list[BlockAnswer]:
    """Answer ids of blocks without data of these tenants as if their objects were missing."""
    registrations = [offer.registration for offer in offered if offer.registration is not None]
    differing = [answer.id for answer in answers if answer.status is AddStatus.DIFFERING]
    own = set(
        Dataset.objects.filter(block__ulid__in=differing, tenant__name__in=tenants).values_list(
            "block__shard", "block__ulid"
        )
    )
    return [
        answer
        if answer.status is not AddStatus.DIFFERING or (registration.meta.shard, answer.id) in own
        else BlockAnswer(id=answer.id, status=AddStatus.REFUSED, error=_missing(registration))
        for answer, registration in zip(answers, registrations, strict=True)
    ]


def _missing(registration: BlockRegistration) -> BlockRefused:
    return BlockRefused(
        f"block {registration.meta.id}: the store has no object of {registration.size_bytes} bytes for it that this "
        "credential may register",
        "object_missing",
    )


def _to_json(answer: BlockAnswer) -> dict[str, str]:
    data = {"id": answer.id, "status": answer.status.value}
    return data | {"code": answer.error.code, "message": str(answer.error)} if answer.error else data
