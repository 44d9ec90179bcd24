"""Whatever happens at the same time, what is visible is what was accepted, less what was deleted or grew too old.

Random histories of adds, polls, completions, releases, delete requests, retention and deletion of objects, beside a
model that knows which segment's data of which tenant is in which block (invariants 3, 4, 19, 20, 21 and 27). A failing
history is the seed in the test's name.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.formats.profile_block.container.metadata import decode_metadata
from engine.lanes.profiles.jobs import ProfileMergeSpec
from engine.lanes.profiles.merge.masks import masks_on
from engine.storage import ObjectStore, open_store
from tests.block_factory import merged
from tests.webadmin.service import FakeWorker, Service, check_invariants
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.masks import read_masks, reading_masks
from webadmin.lanes.profiles.models import Block, Dataset, DeleteRequest, Tombstone
from webadmin.lanes.profiles.services import delete_tombstoned_objects
from webadmin.lanes.profiles.services.delete_requests import DeletionTarget, request_deletion
from webadmin.lanes.profiles.services.retain import apply_retention
from webadmin.lanes.profiles.services.retention_rules import set_retention
from webadmin.lanes.profiles.services.rewrite_masked import rewrite_masked
from webadmin.lanes.profiles.states import LIVE_STATES
from webadmin.schedule.models import Limits

TENANTS = ("acme", "beta", "core")
STEPS = 30
DELAY_SECONDS = 60
DAY_MS = 24 * 3600 * 1000
CONTEXT = ActionContext(actor="test")

Contribution = tuple[str, str]
"""A segment and a tenant: that tenant's data in it."""


@dataclass
class History:
    """One history with its model."""

    service: Service
    store: ObjectStore
    chance: random.Random
    worker: FakeWorker = field(init=False)
    running: dict[str, ProfileMergeSpec] = field(default_factory=dict)
    inside: dict[tuple[str, str], set[Contribution]] = field(default_factory=dict)
    visible: set[Contribution] = field(default_factory=set)
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.worker = self.service.worker("worker")

    def add(self) -> None:
        tenants = self.chance.sample(TENANTS, self.chance.randint(1, 3))
        for ulid in self.service.add_segments(self.chance.randint(1, 4), datasets=[(t, "web") for t in tenants]):
            for tenant in tenants:
                self.inside[ulid, tenant] = {(ulid, tenant)}
                self.visible.add((ulid, tenant))

    def take(self) -> None:
        self.running |= {spec.job: spec for spec in self.worker.take(self.chance.randint(1, 3))}

    def succeed(self) -> None:
        if not self.running:
            return
        spec = self.running.pop(self.chance.choice(sorted(self.running)))
        result = merged(spec)
        contents: defaultdict[str, set[Contribution]] = defaultdict(set)
        for source in spec.sources:
            for dataset in decode_metadata(source.metadata).datasets:
                if dataset.name and not masks_on(dataset, source.masks_applied, spec.masks):
                    contents[dataset.tenant] |= self.inside[source.id, dataset.tenant]
        for block in result.blocks:
            tenant = decode_metadata(block.metadata).tenant
            self.inside[block.id, tenant] = contents[tenant]
        self.worker.poll(self.worker.success(spec.job, result), capacity=0)

    def release(self) -> None:
        if self.running:
            name, _ = self.running.popitem()
            self.worker.poll(self.worker.released(name), capacity=0)

    def crash(self) -> None:
        """The worker forgets everything; its leases run out."""
        self.running.clear()
        self.wait()
        self.wait()

    def wait(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            self.service.clock.advance(14)
            self.worker.poll(*(self.worker.running(name) for name in self.running), capacity=0)

    def delete(self) -> None:
        tenant = self.chance.choice(TENANTS)
        if Dataset.objects.filter(tenant__name=tenant).exists():
            request_deletion(DeletionTarget(tenant=tenant), context=CONTEXT)
            self.visible = {each for each in self.visible if each[1] != tenant}

    def grow_old(self) -> None:
        """Two days pass, and one tenant keeps its data for a day only."""
        tenant = self.chance.choice(TENANTS)
        self.crash()
        self.service.clock.advance(2 * DAY_MS / 1000)
        before = read_visible(self)
        set_retention(tenant=tenant, keep_days=1, context=CONTEXT)
        apply_retention(context=CONTEXT)
        set_retention(tenant=tenant, keep_days=None, context=CONTEXT)
        gone = before - read_visible(self)
        assert {owner for _, owner in gone} <= {tenant}
        self.visible -= gone

    def rewrite(self) -> None:
        rewrite_masked(context=CONTEXT)

    def delete_objects(self) -> None:
        for key in Block.objects.exclude(state="deleted").values_list("object_key", flat=True):
            self.store.put(key, b"object")
        delete_tombstoned_objects(store=self.store)


def read_visible(history: History) -> set[Contribution]:
    """Return what a query would show now; each contribution must be in one place only."""
    masks = read_masks()
    seen: list[Contribution] = []
    rows = Dataset.objects.filter(block__state__in=LIVE_STATES, format=0).values_list(
        "block__ulid", "tenant__name", "name__name", "masks_applied", "min_time_ms", "max_time_ms"
    )
    for ulid, tenant, name, applied, low, high in rows:
        if not reading_masks(masks, tenant=tenant, name=name, masks_applied=applied, min_time_ms=low, max_time_ms=high):
            seen += history.inside[ulid, tenant]
    assert len(seen) == len(set(seen)), "something is counted twice"
    return set(seen)


def check(history: History) -> None:
    check_invariants()
    assert read_visible(history) == history.visible, f"after {' '.join(history.steps)}"
    for stone in Tombstone.objects.exclude(deleted_at_ms=None):
        assert stone.deleted_at_ms > stone.created_at_ms + DELAY_SECONDS * 1000, "deleted too early"
    kept = {info.key for info in history.store.list()}
    gone = set(Block.objects.filter(state="deleted").values_list("object_key", flat=True))
    assert not kept & gone
    done = DeleteRequest.objects.filter(state="done")
    for request in done:
        datasets = Dataset.objects.filter(tenant=request.tenant, masks_applied__lt=request.command_index)
        assert not datasets.exists(), "a certificate says what is not so"


@pytest.mark.row("invariant-4", "invariant-19", "invariant-20", "invariant-21", "invariant-27")
@pytest.mark.parametrize("seed", range(4))
def test_deleted_data_is_not_visible_and_nothing_else_is_lost(service: Service, tmp_path: Path, seed: int) -> None:
    Limits.objects.update(cleanup_delay_seconds=DELAY_SECONDS)
    LevelPolicy.objects.update(blocks_max=3, age_seconds=20)
    history = History(service, open_store(str(tmp_path)), random.Random(seed))
    moves = [
        *[history.add, history.take, history.succeed] * 4,
        *[history.wait, history.delete, history.rewrite, history.delete_objects] * 2,
        *[history.release, history.crash, history.grow_old],
    ]
    for _ in range(STEPS):
        move = history.chance.choice(moves)
        history.steps.append(move.__name__)
        move()
        check(history)
    settle(history)


def settle(history: History) -> None:
    """When everything has come to its end, every request is done and what is left is whole."""
    for _ in range(60):
        if not DeleteRequest.objects.filter(state="hidden").exists():
            break
        history.take()
        while history.running:
            history.succeed()
        history.rewrite()
        history.wait()
        history.delete_objects()
    check(history)
    assert not DeleteRequest.objects.filter(state="hidden").exists()
