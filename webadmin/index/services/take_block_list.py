"""Takes the list of blocks that a writer sends: what can be registered is, in one command; each entry is answered."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from webadmin.database import dialect
from webadmin.index.block_list import read_block_list
from webadmin.index.services.add_blocks import BATCH_MAX, AddStatus, BlockAnswer, add_blocks
from webadmin.index.services.count_refusals import count_refusals


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenList:
    """One answer per entry, in the order sent."""

    command_index: int | None
    answers: tuple[BlockAnswer, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the answer as it goes over the wire."""
        return {"command_index": self.command_index, "blocks": [_to_json(answer) for answer in self.answers]}


def take_block_list(body: bytes, *, actor: str, tenants: Collection[str] = ()) -> TakenList:
    """Register the blocks of a protobuf BlockMetaList. Raises InvalidBatch if it cannot be read as one."""
    offered = read_block_list(body, count_max=BATCH_MAX, tenants=tenants)
    unreadable = [offer.error for offer in offered if offer.error is not None]
    if unreadable:
        count_refusals(unreadable, actor=actor, at_ms=dialect.clock_ms())
    outcome = add_blocks([offer.registration for offer in offered if offer.registration is not None], actor=actor)
    added = iter(outcome.answers)
    answers = tuple(
        BlockAnswer(id=offer.id, status=AddStatus.REFUSED, error=offer.error) if offer.error else next(added)
        for offer in offered
    )
    return TakenList(command_index=outcome.command_index, answers=answers)


def _to_json(answer: BlockAnswer) -> dict[str, str]:
    told = {"id": answer.id, "status": answer.status.value}
    return told | {"code": answer.error.code, "message": str(answer.error)} if answer.error else told
