"""``kill -9`` in the middle of an upload and of the outbox: readers of a bucket see whole blocks and every sample.

The processes are those that ``up`` starts; the proxy before the object store says when who is killed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.formats.prometheus.meta import decode_meta, encode_meta
from engine.formats.prometheus.model import Labels
from engine.lanes.tsdb.buckets.labels import labels_hash
from engine.lanes.tsdb.merge.verification import verify_block
from engine.storage import ObjectStore, open_store
from tests.faults.http_proxy import Request
from tests.faults.stack import CONTROLS, NODES, OBJECTS_PREFIX, SETTLE_SECONDS, FaultStack
from tests.faults.traps import Moment, Trap
from tests.processes import wait_until
from tests.tsdb_blocks import block_id, download, put_block, replica, samples, write_block
from tests.webadmin.lanes.tsdb.fake_bucket import visible

BEFORE, AFTER = Moment.BEFORE, Moment.AFTER
REPLICAS = 3
NOT_YET_SECONDS = 10**9
_tenants = itertools.count()

OF_TENANT = "JOIN tsdb_buckettenant tenant ON {}.tenant_id = tenant.id WHERE tenant.name = %s"
RESULTS = f"SELECT ulid FROM tsdb_block block {OF_TENANT.format('block')} AND made_by_id IS NOT NULL"
STEPS = f"SELECT kind, done_at_ms IS NOT NULL FROM tsdb_outboxstep step {OF_TENANT.format('step')} ORDER BY step.id"
FOUND = f"SELECT count(*) FROM tsdb_block block {OF_TENANT.format('block')}"
DELAY = "UPDATE tsdb_bucket SET consistency_delay_seconds = %s RETURNING id"
PLAN_NOW = "UPDATE tsdb_buckettenant SET plan_at_ms = 0 WHERE name = %s RETURNING id"
INDEX = "SELECT index_written >= index_wanted FROM tsdb_buckettenant WHERE name = %s"
JOBS = "SELECT state FROM schedule_job WHERE lane = 'tsdb' AND tenant = %s"


@pytest.fixture(scope="module")
def metrics(fault_stack: FaultStack) -> Iterator[ObjectStore]:
    """A bucket of Cortex that the stack compacts, seen past the proxy."""
    with adopted(fault_stack, "cortex") as store:
        yield store


@contextmanager
def adopted(stack: FaultStack, layout: str, name: str = "") -> Iterator[ObjectStore]:
    """Let the stack compact a bucket, named after its layout; it is seen past the proxy, and paused in the end."""
    name = name or layout
    urls = (stack.around.store_url, stack.around.proxied_store_url)
    direct, proxied = (url.replace(f"/{OBJECTS_PREFIX}?", f"/{name}?") for url in urls)
    replicas = ("--replica-labels", "replica") if layout == "thanos" else ()
    stack.python(
        "manage.py",
        *("tsdb", "adopt", proxied, "--layout", layout, "--name", name, "--consistency-delay-seconds", "0"),
        *replicas,
    )
    # What the first scan finds was there before and is planned at once, be it only some of the replicas.
    scanned = "SELECT scanned_at_ms IS NOT NULL FROM tsdb_bucket WHERE name = %s"
    wait_until(lambda: stack.rows(scanned, name) == [(True,)], f"{name} is scanned", SETTLE_SECONDS)
    store = open_store(direct)
    yield store
    store.close()
    stack.rows("UPDATE tsdb_bucket SET is_paused = TRUE WHERE name = %s RETURNING id", name)


def united(blocks: list[Path]) -> dict[Labels, set[tuple[int, float]]]:
    """Return every sample of any of the blocks."""
    found: dict[Labels, set[tuple[int, float]]] = {}
    for block in blocks:
        for series, pairs in samples(block).items():
            found.setdefault(series, set()).update(pairs)
    return found


class Tenant:
    """A tenant with three replicas of one interval."""

    def __init__(
        self, stack: FaultStack, store: ObjectStore, scratch: Path, name: str = "", folder: str | None = None
    ) -> None:
        self.name = name or f"tenant-{next(_tenants)}"
        self.folder = f"{self.name}/" if folder is None else folder
        self._stack, self._store, self._scratch = stack, store, scratch
        self._copies = itertools.count()
        self.blocks = [write_block(scratch / "sources", block_id(each), replica(each)) for each in range(REPLICAS)]

    def put(self) -> None:
        """Put the replicas into the bucket; none is planned before a scan has found them all."""
        self._stack.rows(DELAY, NOT_YET_SECONDS)
        for block in self.blocks:
            put_block(self._store, block, self.folder)
        wait_until(lambda: self.rows(FOUND) == [(REPLICAS,)], f"{self.name} is found", SETTLE_SECONDS)
        self._stack.rows(DELAY, 0)
        # A plan that was on its way yet may put the next one off until the delay is over.
        wait_until(lambda: self.rows(PLAN_NOW) and self.rows(JOBS), f"{self.name} is planned", SETTLE_SECONDS)

    def check_readers(self) -> set[str]:
        """Assert that what readers open is whole and holds every sample; return these blocks."""
        seen = visible(self._store, self.folder)
        parent = self._scratch / f"seen-{next(self._copies)}"
        copies = [
            download(self._store, ulid, self._store.get(f"{self.folder}{ulid}/meta.json"), parent, self.folder)
            for ulid in sorted(seen)
        ]
        for copy in copies:
            verify_block(copy)
        assert united(copies) == united(self.blocks)
        return seen

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._stack.rows(query, self.name)

    def is_settled(self) -> bool:
        """Whether the job is done and everything is written to the bucket."""
        steps = self.rows(STEPS)
        return self.rows(JOBS) == [("done",)] and all(done for _, done in steps) and self.rows(INDEX) == [(True,)]

    def wait_until_settled(self) -> None:
        try:
            wait_until(self.is_settled, f"{self.name} is settled", SETTLE_SECONDS)
        except AssertionError as error:
            found = {query: self.rows(query) for query in (JOBS, STEPS, INDEX)}
            raise AssertionError(f"{error}\n{found}\n{self._stack.story()}") from None


@pytest.mark.parametrize(
    ("file", "call", "moment", "victims"),
    [
        ("/chunks/000001", 1, BEFORE, NODES),
        ("/index", 1, AFTER, NODES),
        ("/meta.json", 1, BEFORE, CONTROLS),
        ("/meta.json", 1, AFTER, CONTROLS),
        ("-deletion-mark.json", 2, BEFORE, CONTROLS),
        ("/bucket-index.json.gz", 1, BEFORE, CONTROLS),
    ],
)
def test_a_kill_at_a_write_leaves_nothing_half_visible(
    fault_stack: FaultStack,
    metrics: ObjectStore,
    tmp_path: Path,
    file: str,
    call: int,
    moment: Moment,
    victims: tuple[str, ...],
) -> None:
    tenant = Tenant(fault_stack, metrics, tmp_path)

    def is_the_write(request: Request) -> bool:
        # The index is also written when the blocks are found.
        is_about = request.method == "PUT" and f"/{tenant.name}/" in request.path and request.path.endswith(file)
        return is_about and (not file.endswith(".gz") or bool(tenant.rows(STEPS)))

    trap: Trap[Request] = Trap(matches=is_the_write, moment=moment, call=call)
    with fault_stack.around.store.traps.set(trap):
        tenant.put()
        trap.wait()
        tenant.check_readers()
        fault_stack.kill_client(trap, *victims)
    tenant.check_readers()
    tenant.wait_until_settled()
    [(result,)] = tenant.rows(RESULTS)
    assert tenant.check_readers() == {result}
    steps = [kind for kind, _ in tenant.rows(STEPS)]
    assert steps == ["write_meta", *["mark_deletion"] * REPLICAS]


def test_a_bucket_of_thanos_goes_through_all_processes(
    fault_stack: FaultStack, s3_credentials: None, tmp_path: Path
) -> None:
    labels = {"cluster": "north"}
    with adopted(fault_stack, "thanos") as store:
        tenant = Tenant(fault_stack, store, tmp_path, f"cluster_north.{labels_hash(labels):016x}", folder="")
        for number, block in enumerate(tenant.blocks):
            meta = decode_meta((block / "meta.json").read_bytes())
            external = labels | {"replica": str(number)}
            thanos = {"version": 1, "labels": external, "downsample": {"resolution": 0}, "source": "sidecar"}
            (block / "meta.json").write_bytes(encode_meta(replace(meta, thanos=thanos)))
        tenant.put()
        tenant.wait_until_settled()
        [(result,)] = tenant.rows(RESULTS)
        assert tenant.check_readers() == {result}
        told = json.loads(store.get(f"{result}/meta.json"))
        assert told["thanos"]["labels"] == labels
        assert {each["ulid"] for each in told["compaction"]["parents"]} == {block.name for block in tenant.blocks}
        marks = {info.key for info in store.list() if "mark" in info.key}
        assert marks == {f"{block.name}/deletion-mark.json" for block in tenant.blocks}
        assert not [info.key for info in store.list() if "index.json" in info.key]
