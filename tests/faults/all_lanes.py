"""Work of all four lanes on the stack at once, and what must hold of each afterwards.

A shard of segments, three replicas of Prometheus blocks, a table of a day's files, and a branch with a commit and
staged entries: each sample, row and entry of them must be in exactly one live place, and no job may be stuck.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.storage import ObjectStore
from tests.faults import test_catalog_kills as catalogs
from tests.faults import test_table_kills as tables
from tests.faults.database_proxy import Statement
from tests.faults.stack import LIVE, NODES, SETTLE_SECONDS, FaultStack
from tests.faults.steps import SWAPPED
from tests.faults.test_block_kills import INDEX, OF_TENANT, STEPS, Tenant, adopted
from tests.processes import wait_until

PLANNED = {"tsdb", "tables", "catalog"}
"""Lanes whose jobs are planned by control tasks; those of profiles are planned by the poll that takes them."""
OPEN_LANES = "SELECT DISTINCT lane FROM schedule_job WHERE state <> 'done'"
FAILED_LANES = (
    "SELECT DISTINCT lane FROM schedule_job job JOIN schedule_attempt attempt ON attempt.job_id = job.id"
    " WHERE job.state <> 'done' AND attempt.outcome = 'failed'"
)
OPEN_JOBS = "SELECT name, state, failures, parked_reason FROM schedule_job WHERE state NOT IN ('done', 'dissolved')"
LIVE_BLOCKS = f"SELECT ulid FROM tsdb_block block {OF_TENANT.format('block')} AND state = 'live'"
OPEN_TASKS = "SELECT name FROM tables_task WHERE state = 'open'"
SEGMENTS = 4
# A control worker that died may hold these for minutes.
END_PUBLISHER = "UPDATE tables_datasource SET publisher_until_ms = 0 WHERE name = %s RETURNING id"
END_GATHERING = "UPDATE catalog_compaction SET begun_ms = 0 WHERE branch_id = %s AND job_id IS NULL RETURNING id"

SWAPS = {
    "profiles": f"""
        SELECT j.state = 'done', count(*) FILTER (WHERE b.state IN {LIVE}) > 0, r.count > 0
        FROM schedule_job j
        JOIN profiles_block b ON b.owner_job_id = j.id
        CROSS JOIN LATERAL (SELECT count(*) FROM profiles_blocklineage WHERE job_id = j.id) r
        WHERE j.shard = %s GROUP BY j.id, r.count""",
    "tsdb": """
        SELECT j.state = 'done', count(*) FILTER (WHERE b.state IN ('live', 'owned')) > 0, r.count > 0
        FROM schedule_job j
        JOIN tsdb_part p ON p.job_id = j.id
        JOIN tsdb_block b ON b.group_id = p.group_id
        CROSS JOIN LATERAL (SELECT count(*) FROM tsdb_block WHERE made_by_id = j.id) r
        WHERE j.tenant = %s GROUP BY j.id, r.count""",
    "tables": """
        SELECT j.state = 'done', count(*) FILTER (WHERE s.state = 'visible' AND s.made_by_id IS NULL) > 0,
               count(*) FILTER (WHERE s.state = 'visible' AND s.made_by_id = t.id) > 0
        FROM schedule_job j
        JOIN tables_task t ON t.job_id = j.id
        JOIN tables_datasource d ON d.id = t.source_id
        JOIN tables_segment s ON s.source_id = d.id
        WHERE d.name = %s GROUP BY j.id""",
    "catalog": """
        SELECT j.state = 'done', EXISTS (SELECT FROM catalog_branchtoken WHERE branch_id = b.id AND state = 'sealed'),
               c.state = 'published' AND b.snapshot IS NOT NULL
        FROM schedule_job j
        JOIN catalog_compaction c ON c.job_id = j.id
        JOIN catalog_branch b ON b.id = c.branch_id
        WHERE b.id = %s""",
}
"""Of each job of a lane: whether it is done, whether a source is live, whether a result is there."""


@dataclass(frozen=True, kw_only=True)
class Swap:
    """Recognises the commit of a lane's swap; ``key`` is the parameter of SWAPS."""

    key: str | int
    is_committed: Callable[[Statement], bool]


class AllLanes:
    """Data of one test in each lane; ``name`` is that of the tenant of the bucket and of the repository."""

    def __init__(self, stack: FaultStack, bucket: ObjectStore, scratch: Path, name: str) -> None:
        self._stack, self._name = stack, name
        self.shard = stack.new_shard()
        self._segments = stack.put_segments(self.shard, SEGMENTS)
        self._samples = stack.samples(self._segments)
        self.tenant = Tenant(stack, bucket, scratch, name)
        self.table = tables.Table(stack)
        made: dict[str, tuple[int, int]] = json.loads(stack.python("-c", catalogs.SCENE, name))
        repository, self.branch = made[name]
        self.segment_count = len(self._segments)
        self.swaps = {
            "profiles": Swap(key=self.shard, is_committed=SWAPPED(self.shard)),
            "tsdb": _swap(name, f"-T{name}-", "completed"),
            "tables": Swap(key=self.table.name, is_committed=tables.is_swap),
            "catalog": _swap(self.branch, f"-R{repository}", "published"),
        }

    @contextmanager
    def planned(self) -> Iterator[None]:
        """Let every lane plan a job while the nodes are suspended, which continue after the ``with``."""
        with self._stack.frozen(*NODES):
            self.begin()
            self._wait_until(
                lambda: {lane for (lane,) in self._stack.rows(OPEN_LANES)} >= PLANNED, "all lanes have jobs"
            )
            yield

    def start(self) -> None:
        """Let the nodes take a job of every lane at the same moment."""
        with self.planned():
            pass

    def begin(self) -> None:
        """Give every lane its work."""
        self.table.adopt()
        catalogs.order(self._stack, self.branch)
        self.tenant.put()
        self._stack.register(self._segments)

    def check(self) -> None:
        """Wait until the work of every lane is done; assert that nothing is lost, doubled or stuck."""
        self._stack.rows(END_PUBLISHER, self.table.name)
        self._stack.rows(END_GATHERING, self.branch)
        self._stack.check(self.shard, self._samples)
        self._wait_until(self._is_merged, "the tenant's blocks are merged")
        [(result,)] = self.tenant.rows(LIVE_BLOCKS)
        assert self.tenant.check_readers() == {result}
        self.table.check()
        self._wait_until(self._is_compacted, "the branch is compacted")
        self.check_entries()
        self._wait_until(lambda: not self._stack.rows(OPEN_JOBS), "no job is left")
        self._wait_until(lambda: not self._stack.rows(OPEN_TASKS), "no task of a table is left")

    def wait_until_swapped(self, lanes: Collection[str] = ()) -> None:
        """Wait until a job of each of these lanes, by default of every lane, is done."""
        self._wait_until(lambda: self.are_swapped(lanes or self.swaps), "the lanes have swapped")

    def are_swapped(self, lanes: Collection[str]) -> bool:
        """Return whether a job of each of these lanes is done."""
        return not self._open_swaps().intersection(lanes)

    def are_swaps_lost(self) -> bool:
        """Return whether no lane's job is done."""
        return self._open_swaps() == self.swaps.keys()

    def _open_swaps(self) -> set[str]:
        return {lane for lane in self.swaps if not any(done for done, _, _ in self.swap_states(lane))}

    def check_failed(self) -> None:
        """Wait until an attempt at each lane's open job has failed."""
        self._wait_until(lambda: {lane for (lane,) in self._stack.rows(FAILED_LANES)} >= PLANNED, "jobs fail")

    def swap_states(self, lane: str) -> list[tuple[bool, bool, bool]]:
        """Return of each job of a lane: whether it is done, whether a source is live, whether a result is there."""
        return [(done, live, made) for done, live, made in self._stack.rows(SWAPS[lane], self.swaps[lane].key)]

    def check_readers(self) -> None:
        """Assert that readers of the bucket and of the table see everything once now."""
        self.tenant.check_readers()
        self.table.shown()

    def check_entries(self) -> None:
        """Assert that each entry of the branch is visible once."""
        assert json.loads(self._stack.python("-c", catalogs.LOOK, self._name)) == {self._name: catalogs.VISIBLE}

    def _is_merged(self) -> bool:
        """Return whether one block is live, perhaps of a lost history, and everything is written to the bucket."""
        rows = self.tenant.rows
        return len(rows(LIVE_BLOCKS)) == 1 and all(done for _, done in rows(STEPS)) and rows(INDEX) == [(True,)]

    def _is_compacted(self) -> bool:
        outcomes = [outcome for (outcome,) in catalogs.outcomes(self._stack, self.branch)]
        if outcomes[-1] == "failed":  # as its process died before it had planned the job: an operator asks again
            catalogs.order(self._stack, self.branch)
        return "published" in outcomes

    def _wait_until(self, condition: Callable[[], object], what: str) -> None:
        try:
            wait_until(condition, f"{self._name}: {what}", SETTLE_SECONDS)
        except AssertionError as error:
            outcomes = catalogs.outcomes(self._stack, self.branch)
            found = {query: self._stack.rows(query) for query in (OPEN_JOBS, OPEN_TASKS)}
            raise AssertionError(f"{error}\n{found}, {outcomes}\n{self._stack.story()}") from None


def _swap(key: str | int, job: str, outcome: str) -> Swap:
    """Return the swap of a job of which this is the end or a part of the name."""
    return Swap(
        key=key,
        is_committed=lambda statement: statement.commits(job, outcome),
    )


@contextmanager
def all_lanes(stack: FaultStack, scratch: Path, name: str) -> Iterator[AllLanes]:
    """Prepare work of all lanes, in a bucket of Prometheus blocks of its own."""
    with adopted(stack, "cortex", name) as bucket:
        yield AllLanes(stack, bucket, scratch, name)
