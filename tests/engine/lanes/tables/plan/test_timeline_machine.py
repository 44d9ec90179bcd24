"""The controller, the queue, the commit and the state store together, against what must always hold (I3 to I18)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.lanes.tables.plan.columns import columns
from engine.lanes.tables.plan.commit import CommitAction, pieces_within
from engine.lanes.tables.plan.granularity import DAY_MS, HOUR_MS
from engine.lanes.tables.plan.model import Action, ChunkState, TaskState
from engine.lanes.tables.plan.plan import plan_timeline
from engine.lanes.tables.plan.policy import MB, Align, QueueLimits, Spanning, TimelinePolicy
from engine.lanes.tables.plan.visibility import version_above, visible
from tests.scenarios.timeline_memory import SOURCE, MemoryTimeline, StaleToken, bytes_of

FIRST_MS = 1_706_745_600_000
DAYS = 8
LIMITS = QueueLimits(running_max=2, running_cost_max=5_000 * MB, waiting_max=2)

places = st.integers(0, DAYS * 24 - 1)
lengths = st.sampled_from([1, 1, 6, 24, 24, 50])
sizes = st.sampled_from([0, 1, 5, 20, 150, 330, 500, 501, 900])


class Controller(RuleBasedStateMachine):
    """Writers, workers and an operator do whatever they like; the controller takes a turn now and then."""

    @initialize(
        spanning=st.sampled_from(Spanning),
        align=st.sampled_from([Align.TOUCHED, Align.TOUCHED, Align.ALWAYS]),
        cost_max=st.sampled_from([1_500, 4_000]),
        low_water=st.integers(0, 1),
        carries_over=st.booleans(),
        sees_parts=st.booleans(),
    )
    def begin(
        self, spanning: Spanning, align: Align, cost_max: int, low_water: int, carries_over: bool, sees_parts: bool
    ) -> None:
        policy = TimelinePolicy(
            spanning=spanning if sees_parts else Spanning.CLOSURE,
            align=align,
            cost_max=cost_max * MB,
            small_cost=cost_max * MB // 4,
            partial_visibility=sees_parts,
        )
        limits = QueueLimits(
            running_max=LIMITS.running_max,
            running_cost_max=LIMITS.running_cost_max,
            waiting_max=LIMITS.waiting_max,
            low_water=low_water,
        )
        self.timeline = MemoryTimeline(
            policy, limits, now_ms=FIRST_MS + 60 * DAY_MS, failures_max=1, carries_over=carries_over
        )
        self.is_settled = False

    def version(self) -> str:
        self.timeline.now_ms += 1
        return version_above(self.timeline.now_ms, (one.version for one in self.timeline.segments.values()))

    def interval(self, place: int, length: int) -> dict[str, int]:
        """Return where data comes: where files are seen whole, none that is there may be hidden in part."""
        timeline = self.timeline
        start_ms, end_ms = FIRST_MS + place * HOUR_MS, FIRST_MS + (place + length) * HOUR_MS
        while not timeline.policy.partial_visibility:
            start_ms, end_ms = timeline.policy.granularity.hull(start_ms, end_ms)
            near = [one for one in timeline.segments.values() if one.start_ms < end_ms and start_ms < one.end_ms]
            hull = min([start_ms, *(one.start_ms for one in near)]), max([end_ms, *(one.end_ms for one in near)])
            if hull == (start_ms, end_ms):
                break
            start_ms, end_ms = hull
        return {"start_ms": start_ms, "end_ms": end_ms}

    # Writers.

    @rule(place=places, length=lengths, count=st.integers(1, 6), size=sizes)
    def overwrite(self, place: int, length: int, count: int, size: int) -> None:
        where, version = self.interval(place, length), self.version()
        for number in range(count):
            self.timeline.add(
                **where,
                version=version,
                partition=number,
                core_partitions=count,
                size_bytes=size * MB + number,
            )
        self.is_settled = False

    @precondition(lambda self: self.timeline.segments)
    @rule(data=st.data(), size=sizes)
    def append(self, data: st.DataObject, size: int) -> None:
        one = self.timeline.segments[data.draw(st.sampled_from(sorted(self.timeline.segments)))]
        entry = [
            other
            for other in self.timeline.segments.values()
            if (other.start_ms, other.end_ms, other.version) == (one.start_ms, one.end_ms, one.version)
        ]
        if any(other.is_tombstone for other in entry):
            return
        self.timeline.add(
            start_ms=one.start_ms,
            end_ms=one.end_ms,
            version=one.version,
            partition=max(other.partition for other in entry) + 1,
            core_partitions=one.core_partitions,
            size_bytes=size * MB,
        )
        self.is_settled = False

    @rule(place=places, length=lengths)
    def add_tombstone(self, place: int, length: int) -> None:
        self.timeline.add(**self.interval(place, length), version=self.version(), is_tombstone=True)
        self.is_settled = False

    @precondition(lambda self: self.timeline.segments)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.timeline.remove(data.draw(st.sampled_from(sorted(self.timeline.segments))))
        self.is_settled = False

    # The controller and its operator.

    @rule(is_whole=st.sampled_from([False, False, False, True]))
    def turn(self, is_whole: bool) -> None:
        timeline = self.timeline
        before = {name: task.entry for name, task in timeline.tasks.items()}
        touched = set(timeline.touched)
        arrivals_before = {row.chunk.start_ms: row for row in timeline.rows.values()}
        decided = timeline.turn(is_whole=is_whole)
        self.is_settled = True
        assert not decided.refusals
        for name, entry in before.items():
            if entry.state is TaskState.RUNNING:  # I13: what runs is never shed
                assert name in timeline.tasks
        linked = {key for start in touched for key in timeline.by_chunk.get(start, ())}
        for _, start_ms in decided.analysed:  # I14
            row = arrivals_before.get(start_ms)
            if row is not None and start_ms not in touched:
                keys = timeline.by_chunk.get(start_ms, set())
                assert linked & keys or set(row.chunk.shared) - keys or _was_shared(arrivals_before, touched, row)
        again = timeline.turn()  # E27: a second controller at once finds nothing to do but to take back what has room
        assert (again.analysed, again.dissolved, again.shed, again.removed) == ((), (), (), ()), again
        assert {chunk.start_ms for task in again.created for chunk in task.chunks if chunk.priority} == {
            start_ms for _, start_ms in again.readmitted
        }

    @rule(hours=st.integers(1, 100))
    def wait(self, hours: int) -> None:
        self.timeline.now_ms += hours * HOUR_MS

    @rule(most=st.sampled_from([100, 300, 500]))
    def change_policy(self, most: int) -> None:
        self.timeline.policy = replace(self.timeline.policy, segment_bytes_max=most * MB)
        self.timeline.touched |= set(self.timeline.by_chunk) | set(self.timeline.rows)
        self.is_settled = False

    @precondition(lambda self: any(row.quarantined for row in self.timeline.rows.values()))
    @rule(data=st.data())
    def want(self, data: st.DataObject) -> None:
        aside = sorted(start for start, row in self.timeline.rows.items() if row.quarantined)
        self.timeline.urgent.add(data.draw(st.sampled_from(aside)))
        self.is_settled = False

    # Workers.

    def running(self) -> list[str]:
        return sorted(name for name, task in self.timeline.tasks.items() if task.entry.state is TaskState.RUNNING)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), is_broken_off=st.booleans())
    def commit(self, data: st.DataObject, is_broken_off: bool) -> None:
        timeline = self.timeline
        name = data.draw(st.sampled_from(self.running()))
        task = timeline.tasks[name]
        only = None
        if is_broken_off and timeline.policy.partial_visibility:  # else all or nothing: files are seen whole
            only = {chunk.start_ms for chunk in task.planned.chunks[: data.draw(st.integers(0, 3))]}
        before = {chunk.start_ms: self.seen(chunk.start_ms, chunk.end_ms) for chunk in task.planned.chunks}
        for commit in timeline.commit(name, task.token, only=only):
            after = self.seen(commit.start_ms, commit.end_ms)
            was = before[commit.start_ms]
            assert sum(after.values()) == sum(was.values())  # I15
            if commit.action is CommitAction.ABORT:
                assert after == was
            else:
                planned = next(chunk.keys for chunk in task.planned.chunks if chunk.start_ms == commit.start_ms)
                assert set(was) - set(after) <= set(planned)  # I16
        if only is not None:  # its worker dies: the task is over, and what it did stays
            timeline.fail(name, task.token, "lost", is_counted=False)
        with pytest.raises(StaleToken):  # I17
            timeline.commit(name, task.token)
        self.is_settled = False

    def seen(self, start_ms: int, end_ms: int) -> dict[int, int]:
        timeline = self.timeline
        near = {key for at in timeline.chunks_of(start_ms, end_ms) for key in timeline.by_chunk.get(at, ())}
        pieces, _ = pieces_within([timeline.segments[key] for key in near], start_ms, end_ms)
        found: dict[int, int] = {}
        for piece in pieces:
            if not piece.segment.is_tombstone:
                found[piece.segment.key] = found.get(piece.segment.key, 0) + bytes_of(piece)
        return found

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.running()))
        self.timeline.fail(name, self.timeline.tasks[name].token, "out of memory")
        self.is_settled = False

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def take_over(self, data: st.DataObject) -> None:
        """Another worker gets the task: the first one's report is refused."""
        name = data.draw(st.sampled_from(self.running()))
        before = self.timeline.tasks[name].token
        assert self.timeline.start(name) > before
        with pytest.raises(StaleToken):
            self.timeline.commit(name, before)

    # What always holds.

    @invariant()
    def limits_hold(self) -> None:
        tasks = [task.entry for task in self.timeline.tasks.values()]
        running = [task for task in tasks if task.state is TaskState.RUNNING]
        assert len(running) <= LIMITS.running_max
        assert len(running) <= 1 or sum(task.cost for task in running) <= LIMITS.running_cost_max  # I12
        assert len(tasks) - len(running) <= LIMITS.waiting_max
        held = [key for task in running for key in task.shared]
        assert len(set(held)) == len(held)  # I7
        chunks = [start_ms for task in tasks for start_ms, _ in task.chunk_digests]
        assert len(set(chunks)) == len(chunks)  # I3

    @invariant()
    def rows_say_what_is(self) -> None:
        if not self.is_settled:
            return
        timeline = self.timeline
        holder = {start_ms: name for name, task in timeline.tasks.items() for start_ms, _ in task.entry.chunk_digests}
        outputs = {
            start_ms: frozenset(row.outputs)
            for start_ms, row in timeline.rows.items()
            if row.outputs_fp == timeline.policy.output_fingerprint()
        }
        plan = plan_timeline(
            SOURCE, tuple(timeline.segments.values()), timeline.policy, now_ms=timeline.now_ms, outputs=outputs
        )
        assert {chunk.start_ms for chunk in plan.chunks} == set(timeline.rows)  # I18
        for chunk in plan.chunks:
            row = timeline.rows[chunk.start_ms]
            assert _unaged(row.chunk) == _unaged(chunk)  # what is told of changes alone is what is told of all
            assert row.reason
            assert row.task == holder.get(chunk.start_ms, ""), row
            if chunk.action is Action.COMPACT:  # I9
                is_tied = bool(chunk.shared) and not timeline.policy.partial_visibility  # it may wait for another task
                assert row.task or row.state is ChunkState.DEFERRED or is_tied
                assert row.state in (ChunkState.UNSTABLE, ChunkState.DEFERRED)
            else:
                assert row.state in (ChunkState.STABLE, ChunkState.EMPTY)

    def teardown(self) -> None:
        """Without further writes, everything is done in the end, and then nothing is left to do (I8)."""
        timeline = self.__dict__.get("timeline")
        if timeline is None:
            return
        for key in visible(columns(tuple(timeline.segments.values()))).incomplete:
            timeline.remove(key)  # nobody waits for the rest of them
        for _ in range(200):
            timeline.urgent |= {start for start, row in timeline.rows.items() if row.quarantined}
            decided = timeline.turn()
            running = self.running()
            if not running and not decided.created:
                break
            done = [commit for name in running for commit in timeline.commit(name, timeline.tasks[name].token)]
        else:
            raise AssertionError(f"there is no end: {decided} {done}")
        assert not timeline.tasks, [(task.entry, task.entry.deps) for task in timeline.tasks.values()]
        assert not timeline.turn(is_whole=True).created
        left = [row for row in timeline.rows.values() if row.state not in (ChunkState.STABLE, ChunkState.EMPTY)]
        assert not left, [(row.state, row.reason, row.chunk) for row in left]
        assert timeline.needless == 0


def _unaged(chunk: Any) -> dict[str, Any]:
    left_out = ("priority", "recency")
    return {name: getattr(chunk, name) for name in chunk.__dataclass_fields__ if name not in left_out}


def _was_shared(rows: dict[int, Any], touched: set[int], row: Any) -> bool:
    return any(set(rows[start].chunk.shared) & set(row.chunk.shared) for start in touched if start in rows)


TestController = Controller.TestCase
TestController.settings = settings(
    max_examples=60,
    phases=[Phase.generate],
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
