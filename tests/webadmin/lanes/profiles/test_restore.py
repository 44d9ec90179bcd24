"""The index lost at any moment: what comes back from the bucket holds every tenant's data of every segment once."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.db import connection
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine.formats.profile_block.container.metadata import decode_metadata
from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec
from engine.storage import ObjectStore, open_store
from tests.block_factory import block_meta, ulid
from tests.webadmin.lanes.profiles.test_bucket_and_index import forget_everything, put, write_results
from tests.webadmin.service import FakeWorker, Service, check_invariants, rolled_back
from webadmin.lanes.profiles.bucket.lineage_objects import BlockName
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.models import Block, LineageMark, Tombstone
from webadmin.lanes.profiles.services import import_blocks
from webadmin.lanes.profiles.services.delete_objects import delete_tombstoned_objects
from webadmin.lanes.profiles.services.rebuild_index import rebuild_index
from webadmin.lanes.profiles.services.record_lineage import record_lineage
from webadmin.lanes.tsdb.models import Bucket
from webadmin.placement.rule_models import PlacementOverride
from webadmin.schedule.models import Command, Job, LogHead
from webadmin.schedule.operation_models import LimitChange, Pause

Part = tuple[str, str]
"""A segment and a tenant with data in it."""
TENANTS = [("acme",), ("beta",), ("acme", "beta")]


@dataclass
class History:
    """A service and a bucket to which things happen. ``holds`` says which parts an object has, wanted or not."""

    service: Service
    store: ObjectStore
    holds: dict[BlockName, frozenset[Part]] = field(default_factory=dict)
    added: set[Part] = field(default_factory=set)
    running: list[tuple[FakeWorker, ProfileMergeSpec, ProfileMergeResult]] = field(default_factory=list)

    def add(self, *segments: tuple[str, ...]) -> None:
        """Write and register segments of one writer, each with data of these tenants."""
        for tenants in segments:
            block_id = ulid(self.service.clock.now_ms, len(self.holds))
            meta = put(self.store, block_meta(block_id, datasets=[(tenant, "web") for tenant in tenants]))
            assert self.service.add(meta).accepted
            self.holds[1, block_id] = frozenset((block_id, tenant) for tenant in tenants)
            self.added |= self.holds[1, block_id]
            self.service.clock.advance(0.001)

    def merge(self) -> None:
        """Take a job and write its results without a word."""
        worker = self.service.worker()
        for spec in worker.take():
            result = write_results(self.store, spec)
            parts = frozenset().union(*(self.holds[spec.shard, source.id] for source in spec.sources))
            for block in result.blocks:
                tenant = decode_metadata(block.metadata).tenant
                self.holds[spec.shard, block.id] = frozenset(part for part in parts if part[1] == tenant)
            self.running.append((worker, spec, result))

    def report(self) -> None:
        """Commit the oldest merge, unless somebody else has its job by now."""
        for worker, spec, result in self.running[:1]:
            worker.poll(worker.success(spec.job, result), capacity=0)
        del self.running[:1]

    def expire(self) -> None:
        """Let every lease run out."""
        for _ in range(2):
            self.service.clock.advance(15.001)
            self.service.worker().poll(capacity=0)

    def take_over(self) -> None:
        """Merge what somebody else has merged in vain."""
        self.merge()
        self.expire()
        self.running.clear()
        self.merge()
        self.report()

    def delete(self, count: int) -> None:
        """Delete some objects whose time has come."""
        Tombstone.objects.update(eligible_at_ms=0)
        delete_tombstoned_objects(store=self.store, limit=count)

    def record(self) -> None:
        """Tell the bucket."""
        record_lineage(store=self.store)

    def check(self) -> None:
        """Every part that was ever added is in exactly one live block."""
        live = Block.objects.live().values_list("shard", "ulid")
        counts = Counter(part for name in live for part in self.holds[name])
        assert counts == dict.fromkeys(self.added, 1)
        check_invariants()


EVENTS = st.one_of(
    st.tuples(st.just("add"), *[st.sampled_from(TENANTS)] * 2),
    st.tuples(st.just("add"), *[st.sampled_from(TENANTS)] * 2),
    st.tuples(st.just("merge")),
    st.tuples(st.just("merge")),
    st.tuples(st.just("report")),
    st.tuples(st.just("report")),
    st.tuples(st.just("take_over")),
    st.tuples(st.just("expire")),
    st.tuples(st.just("record")),
    st.tuples(st.just("delete"), st.integers(1, 4)),
)


ACME = ("add", ("acme",), ("acme",))
TWO_LEVELS = [ACME, ("take_over",), ACME, ("merge",), ("report",), ("merge",), ("report",)]
"""Two merges, the results of which are merged; a run of the first was in vain."""


@pytest.mark.parametrize("restore", [rebuild_index, import_blocks])
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@example(events=[("add", ("acme",), ("acme", "beta")), ("take_over",), ("delete", 4)])
@example(events=[*TWO_LEVELS, ("delete", 4), ("delete", 4)])
@example(events=[("add", ("acme",), ("beta",)), ("merge",), ("report",)])
@given(events=st.lists(EVENTS, min_size=3, max_size=20))
def test_at_any_moment_the_bucket_has_everything_once(
    service: Service, tmp_path_factory: pytest.TempPathFactory, restore: Any, events: list[tuple[Any, ...]]
) -> None:
    LevelPolicy.objects.update(blocks_max=2)
    with rolled_back():
        history = History(service, open_store(str(tmp_path_factory.mktemp("bucket"))))
        for name, *arguments in events:
            getattr(history, name)(*arguments)
        history.check()
        forget_everything()
        restore(store=history.store, actor="test")
        history.check()
        before = set(Block.objects.values_list("ulid", flat=True))
        import_blocks(store=history.store, actor="test")
        assert set(Block.objects.values_list("ulid", flat=True)) == before, "and a second look finds nothing more"


def lose_the_log() -> None:
    """Lose the entries too, and let the numbers begin again, as in an empty database."""
    Command.objects.all().delete()
    LogHead.objects.update(last_index=0)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT setval(pg_get_serial_sequence('schedule_command', 'index'), 1, false)")
        else:
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = 'schedule_command'")


def test_tokens_and_result_names_after_a_restore_were_never_used_before(service: Service, tmp_path: Path) -> None:
    lose_the_log()  # an earlier test may have left its numbers high
    history = History(service, open_store(str(tmp_path)))
    LevelPolicy.objects.update(blocks_max=2)
    history.add(("acme",), ("acme",))
    history.merge()
    [(old_worker, old_spec, old_result)] = history.running
    service.clock.advance(1)
    forget_everything()
    lose_the_log()
    outcome = rebuild_index(store=history.store, actor="test")
    assert outcome.log_starts_at == Command.objects.order_by("index").first().index
    worker = service.worker()
    [spec] = worker.take()
    assert spec.job == old_spec.job, "the same work, planned anew"
    assert spec.fence > service.clock.now_ms - 60_000 > old_spec.fence
    before = service.dump()
    assert old_worker.poll(old_worker.success(spec.job, old_result), capacity=0).leases == ()
    assert service.dump() == before
    result = write_results(history.store, spec)
    assert {block.id for block in result.blocks}.isdisjoint(block.id for block in old_result.blocks)
    worker.poll(worker.success(spec.job, result), capacity=0)
    assert Job.objects.get().state == "done"


def test_a_wrong_clock_does_not_bring_a_token_back(service: Service, tmp_path: Path) -> None:
    history = History(service, open_store(str(tmp_path)))
    LevelPolicy.objects.update(blocks_max=2)
    history.add(("acme",), ("acme",))
    history.merge()
    history.report()
    history.record()
    last = Command.objects.order_by("-index").first().index
    forget_everything()
    lose_the_log()
    service.clock.now_ms = 1000
    assert rebuild_index(store=history.store, actor="test").log_starts_at > last + 1000


def test_a_log_that_wrote_the_records_itself_stays_where_it_is(service: Service, tmp_path: Path) -> None:
    history = History(service, open_store(str(tmp_path)))
    LevelPolicy.objects.update(blocks_max=2)
    history.add(("acme",), ("acme",))
    history.merge()
    history.report()
    history.record()
    before = service.dump()
    assert rebuild_index(store=history.store, actor="test").log_starts_at is None
    import_blocks(store=history.store, actor="test")
    assert service.dump() == before


def test_what_was_dropped_does_not_come_back(service: Service, tmp_path: Path) -> None:
    from webadmin.base.actions.action import ActionContext
    from webadmin.lanes.profiles.services.retain import apply_retention

    store = open_store(str(tmp_path))
    old = put(store, block_meta(ulid(service.clock.now_ms - 40 * 86_400_000), tenant="acme", level=3))
    assert service.add(old, any_age=True).accepted
    apply_retention(context=ActionContext(actor="test"))
    record_lineage(store=store)
    forget_everything()
    outcome = rebuild_index(store=store, actor="test")
    assert (outcome.added, len(outcome.left_out)) == (0, 1)


def test_a_lost_result_whose_sources_are_deleted_is_reported(service: Service, tmp_path: Path) -> None:
    history = History(service, open_store(str(tmp_path)))
    LevelPolicy.objects.update(blocks_max=2)
    history.add(("acme",), ("acme",))
    history.merge()
    history.report()
    history.delete(1)
    history.store.delete(Block.objects.live().get().object_key)
    forget_everything()
    outcome = rebuild_index(store=history.store, actor="test")
    assert outcome.added == 0
    assert "is lost" in str(outcome.bad[0][1])


def test_parts_of_a_foreign_merge_stay_together_after_one_of_them_was_rewritten(
    service: Service, tmp_path: Path
) -> None:
    """Two blocks of one time, tenant and level; a record of one of them says nothing of the other."""
    store = open_store(str(tmp_path))
    made_ms = service.clock.now_ms
    parts = [put(store, block_meta(ulid(made_ms, n), level=1, tenant="acme")) for n in range(2)]
    assert import_blocks(store=store, actor="test").imported == 2
    last = Block.objects.order_by("-id").values_list("id", flat=True)[0]
    while not LineageMark.objects.filter(foreign_block__gte=last).exists():  # a run looks at so many row ids only
        record_lineage(store=store)
    rewritten = put(store, block_meta(ulid(made_ms, 9), level=1, tenant="acme"))
    forget_everything()
    outcome = rebuild_index(store=store, actor="test")
    assert set(Block.objects.values_list("ulid", flat=True)) == {part.id for part in parts}
    assert [rewritten.id in key for key in outcome.left_out] == [True]


def test_what_the_page_saves_are_all_decisions_and_they_come_back(service: Service, tmp_path: Path) -> None:
    """The command of docs/how-to/restore-the-index.md, as it is written there."""
    page = (Path(__file__).parents[4] / "docs" / "how-to" / "restore-the-index.md").read_text()
    [command] = re.findall(r"manage (dumpdata .*) --output", page)
    _, *words = command.split()
    raise_limit = LimitChange(name="failures_max", scope_kind="global", scope_value="", value=9, set_at_ms=1)
    raise_limit.command_index, raise_limit.actor, raise_limit.why = 1, "ann", "a bad night"
    raise_limit.save()
    Pause.objects.create(
        scope_kind="tenant", scope_value="acme", mode="pause", since_ms=1, command_index=1, actor="ann"
    )
    PlacementOverride.objects.create(tenant="acme", dataset="web", shards=[3])
    Bucket.objects.create(name="metrics", url="s3://metrics", layout="cortex")
    watchers = Group.objects.create(name="watchers")
    permission = Permission.objects.get(content_type__app_label="schedule", codename="view_job")
    watchers.permissions.add(permission)
    User.objects.create(username="ann").groups.add(watchers)
    saved = tmp_path / "decisions.json"
    call_command("dumpdata", *words, output=str(saved))
    for model in (LimitChange, Pause, PlacementOverride, Bucket, User, Group):
        model.objects.all().delete()
    # A new database numbers its permissions anew: they come back by name, or people would get those of others.
    named = {"name": permission.name, "content_type": permission.content_type, "codename": permission.codename}
    permission.delete()
    Permission.objects.create(**named)
    call_command("loaddata", str(saved), verbosity=0)
    assert (LimitChange.objects.get().value, Pause.objects.get().scope_value) == (9, "acme")
    assert (PlacementOverride.objects.get().shards, Bucket.objects.get().url) == ([3], "s3://metrics")
    assert User.objects.get().has_perm("schedule.view_job")
