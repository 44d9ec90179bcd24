"""Segments of a chosen size for chosen datasets, and rounds of placement over them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from engine.formats.profile_block.model import BlockMeta
from engine.placement.documents import decode_rules
from engine.placement.model import PlacementRules
from engine.storage.local import LocalStore
from engine.storage.model import ObjectStore
from tests.block_factory import block_meta, ulid
from tests.webadmin.service import Service
from webadmin.lanes.profiles.registration import BlockRegistration
from webadmin.lanes.profiles.services import add_blocks
from webadmin.placement.rule_models import RulesHead
from webadmin.placement.services.build_placement_rules import RoundOutcome, build_placement_rules

KIB = 1024
UNIT = 128 * KIB
"""Bytes/s of one shard, as built in."""
ROUND_S = 15


@dataclass
class Placement:
    """Writers and the control task, over one store."""

    service: Service
    store: ObjectStore
    made: int = field(default=0)

    def segment(self, tenant: str, dataset: str, size: int, *, shard: int = 1, owner: str = "writer-1") -> BlockMeta:
        """Return the metadata of a segment that one dataset fills, with an id of now."""
        self.made += 1
        meta = block_meta(ulid(self.service.clock.now_ms, self.made), shard=shard, datasets=[(tenant, dataset)])
        filled = replace(meta.datasets[0], size=size)
        strings = tuple(sorted({*meta.string_table, owner}))
        return replace(
            meta, datasets=(filled,), size=size + 300, metadata_offset=size, created_by=owner, string_table=strings
        )

    def write(self, tenant: str, dataset: str, size: int, *, shard: int = 1, owner: str = "writer-1") -> None:
        """Register a segment."""
        meta = self.segment(tenant, dataset, size, shard=shard, owner=owner)
        outcome = add_blocks([BlockRegistration.of(meta)], actor=f"writer:{owner}")
        assert outcome.accepted == (meta.id,)

    def round(self, *, after_s: float = ROUND_S, store: ObjectStore | None = None, **options: int) -> RoundOutcome:
        """Let time pass and do one round."""
        self.service.clock.advance(after_s)
        now_ms = self.service.clock.now_ms
        return build_placement_rules(store=store or self.store, now_ms=now_ms, **options)

    def rules(self) -> PlacementRules:
        """Return the rules in the database."""
        return decode_rules(bytes(RulesHead.objects.get().document))

    def run(self, seconds: int, *loads: tuple[str, str, int, int], owner: str = "writer-1") -> None:
        """Write so many bytes/s per (tenant, dataset, shard, bytes), a segment and a round every 15 s."""
        for _ in range(seconds // ROUND_S):
            self.service.clock.advance(ROUND_S)
            for tenant, dataset, shard, rate in loads:
                if rate:
                    self.write(tenant, dataset, ROUND_S * rate, shard=shard, owner=owner)
            self.round(after_s=0)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "objects")


@pytest.fixture
def placement(service: Service, store: LocalStore) -> Placement:
    return Placement(service, store)
