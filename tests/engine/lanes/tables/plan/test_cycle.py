"""Turns of the controller: rows of the timeline sheet in which time passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.lanes.tables.plan.admission import admit
from engine.lanes.tables.plan.commit import CommitAction
from engine.lanes.tables.plan.cycle import queued, run_cycle
from engine.lanes.tables.plan.granularity import DAY_MS, HOUR_MS, Granularity
from engine.lanes.tables.plan.model import (
    Action,
    Chunk,
    ChunkState,
    CycleDecisions,
    QueuedTask,
    StoredChunk,
    TaskState,
)
from engine.lanes.tables.plan.policy import MB, QueueLimits, TimelinePolicy
from engine.lanes.tables.plan.snapshots import CycleSnapshot, SourceSnapshot
from tests.engine.lanes.tables.plan.worlds import (
    NOW_MS,
    day,
    days_of,
    put,
    put_hours,
    running,
    states,
    timeline,
)
from tests.scenarios.timeline_memory import MemoryTimeline, StaleToken

# Admission.

TASKS = {"A": (70, 900), "B": (55, 4_500), "C": (45, 1_080), "D": (30, 480), "E": (20, 3_500), "F": (6, 1_002)}
FEW = QueueLimits(running_max=2, running_cost_max=5_000 * MB, waiting_max=3)


def _chunk(number: int, priority: int, cost: int) -> Chunk:
    return Chunk(
        start_ms=day(number),
        end_ms=day(number + 1),
        digest=f"{number:016x}",
        cost=cost * MB,
        priority=priority * 10_000,
        action=Action.COMPACT,
    )


class _Queue:
    """Tasks of one chunk each, on every other day, through the shipped turn."""

    def __init__(self, limits: QueueLimits = FEW) -> None:
        self.limits = limits
        self.policy = TimelinePolicy(cost_max=10_000 * MB)
        self.names = {day(2 * place + 1): name for place, name in enumerate(TASKS)}
        self.rows = {
            start_ms: StoredChunk(
                source="t",
                chunk=_chunk(2 * place + 1, *TASKS[name]),
                state=ChunkState.UNSTABLE,
                fp=self.policy.fingerprint(),
            )
            for place, (start_ms, name) in enumerate(self.names.items())
        }
        self.tasks: dict[str, QueuedTask] = {}
        self.now_ms = NOW_MS

    def turn(self) -> CycleDecisions:
        told = SourceSnapshot(source="t", policy=self.policy, extents=(), rows=tuple(self.rows.values()))
        self.now_ms += 1
        decided = run_cycle(
            CycleSnapshot(now_ms=self.now_ms, sources=(told,), tasks=tuple(self.tasks.values()), limits=self.limits)
        )
        for task in decided.created:
            self.tasks[task.name] = queued(task, now_ms=0, policy=self.policy)
        for row in decided.rows:
            self.rows[row.chunk.start_ms] = row
        for name, count in decided.passed_over:
            self.tasks[name] = replace(self.tasks[name], passed_over=count)
        for name in decided.started:
            self.tasks[name] = replace(self.tasks[name], state=TaskState.RUNNING)
        return decided

    def end(self, letter: str) -> None:
        start_ms = next(start for start, name in self.names.items() if name == letter)
        self.tasks = {name: task for name, task in self.tasks.items() if task.start_ms != start_ms}
        del self.rows[start_ms]
        self.turn()

    def told(self) -> str:
        letters = {TaskState.RUNNING: "", TaskState.WAITING: ""}
        for task in sorted(self.tasks.values(), key=lambda task: -task.priority):
            letters[task.state] += self.names[task.start_ms]
        return f"{letters[TaskState.RUNNING]} / {letters[TaskState.WAITING]}"


@pytest.mark.row("X17")
def test_a_task_that_does_not_fit_is_skipped_twice_and_then_reserves_its_slots() -> None:
    queue = _Queue()
    queue.turn()
    found = [queue.told()]
    deferred = [queue.names[start] for start, row in queue.rows.items() if row.state is ChunkState.DEFERRED]
    for letter in "ACDB":
        queue.end(letter)
        found.append(queue.told())
    assert deferred == ["F"]
    assert found == ["AC / BDE", "CD / BE", "BD / E", "B / E", "EF / "]


@pytest.mark.row("E24")
def test_one_queue_orders_the_tasks_of_all_data_sources() -> None:
    def task(name: str, source: str, priority: int, end: int) -> QueuedTask:
        return QueuedTask(
            name=name, source=source, end_ms=day(end + 1), chunk_digests=((day(end), ""),), cost=1, priority=priority
        )

    tasks = [task("a", "s1", 5, 3), task("b", "s2", 9, 1), task("c", "s2", 5, 4), task("d", "s0", 5, 3)]
    for order in (tasks, tasks[::-1]):
        found = admit(order, QueueLimits(running_max=2, waiting_max=1), now_ms=0)
        assert [one.name for one in found.started] == ["b", "c"]
        assert [one.name for one in found.waiting] == ["d"]
        assert [one.name for one in found.shed] == ["a"]


def test_one_over_the_limit_waits_until_nothing_runs_and_then_runs_alone() -> None:
    def task(name: str, state: TaskState, cost: int, *, is_over_limit: bool = False) -> QueuedTask:
        return QueuedTask(
            name=name,
            source="t",
            end_ms=2,
            chunk_digests=((1, ""),),
            cost=cost,
            priority=len(name),
            state=state,
            is_over_limit=is_over_limit,
        )

    limits = QueueLimits(running_cost_max=10)
    large, small = task("large", TaskState.WAITING, 11), task("s", TaskState.WAITING, 1)
    assert [one.name for one in admit([large, small], limits, now_ms=0).started] == ["large"]
    runs = task("r", TaskState.RUNNING, 1)
    found = admit([large, small, runs], limits, now_ms=0)
    assert [one.name for one in found.started] == ["s"]
    assert [(one.name, one.passed_over) for one in found.passed_over] == [("large", 1)]
    patient = replace(large, passed_over=limits.skips_max)
    assert not admit([patient, small, runs], limits, now_ms=0).started
    alone = task("alone", TaskState.RUNNING, 1, is_over_limit=True)
    assert not admit([small, alone], limits, now_ms=0).started


def test_with_ageing_old_tasks_come_before_more_urgent_ones() -> None:
    limits = QueueLimits(running_max=1, ageing_ms=HOUR_MS)
    old = QueuedTask(name="old", source="t", end_ms=1, chunk_digests=((0, ""),), cost=1, priority=100_000)
    new = QueuedTask(
        name="new",
        source="t",
        end_ms=1,
        chunk_digests=((0, ""),),
        cost=1,
        priority=600_000,
        waiting_since_ms=3 * HOUR_MS,
    )
    assert [one.name for one in admit([old, new], limits, now_ms=3 * HOUR_MS).started] == ["old"]
    never = replace(limits, ageing_ms=0)
    assert [one.name for one in admit([old, new], never, now_ms=3 * HOUR_MS).started] == ["new"]


# The state store.


def _overfull() -> MemoryTimeline:
    """Return a world in which one task runs, one waits and one was put off: days 1, 3 and 5."""
    world = timeline(limits=QueueLimits(running_max=1, waiting_max=1))
    put(world, 1, 2, 24, 5)
    put(world, 3, 4, 12, 5)
    put(world, 5, 6, 3, 330)
    world.turn()
    return world


@pytest.mark.row("X18")
def test_deferred_chunks_are_planned_again_only_when_data_arrives() -> None:
    world = _overfull()
    assert states(world) == {1: "unstable", 3: "unstable", 5: "deferred"}
    before = world.analyses
    world.touched.add(day(5))  # somebody says it changed, and it did not
    assert world.turn() == CycleDecisions()
    put(world, 5, 6, 40, 1, first=3)
    decided = world.turn()
    assert [start for _, start in decided.analysed] == [day(5)]
    assert world.analyses == before + 1
    assert states(world) == {1: "unstable", 3: "deferred", 5: "unstable"}


@pytest.mark.row("E26")
def test_unchanged_chunks_are_not_analysed() -> None:
    world = timeline()
    put_hours(world, 1, 11, 5)
    world.turn()
    assert len(world.rows) == 10
    assert world.turn(is_whole=True) == CycleDecisions()


@pytest.mark.row("E27")
def test_a_second_cycle_at_once_does_nothing() -> None:
    world = timeline()
    put_hours(world, 1, 11, 5)
    snapshot = world.snapshot()
    assert run_cycle(snapshot) == run_cycle(snapshot)
    world.turn()
    assert world.turn() == CycleDecisions()


@pytest.mark.row("E11")
def test_data_that_arrives_while_a_task_waits_replaces_it() -> None:
    world = timeline(limits=QueueLimits(running_max=1))
    put(world, 1, 2, 24, 5)
    put(world, 3, 4, 12, 5)
    world.turn()
    waiting = next(name for name in world.tasks if name not in running(world))
    put(world, 3, 4, 1, 5, first=12)
    decided = world.turn()
    assert [name for name, _ in decided.dissolved] == [waiting]
    assert "2024-02-03" in decided.dissolved[0][1]
    assert [len(task.segment_keys) for task in decided.created] == [13]


@pytest.mark.row("E12", "E13")
def test_data_for_the_chunk_of_a_running_task_waits_for_its_commit() -> None:
    world = timeline()
    keys = [one.key for one in put(world, 1, 2, 3, 5)]
    world.turn()
    (name,) = running(world)
    for key in keys:
        world.remove(key)
    decided = world.turn()
    assert decided.dissolved == ()
    assert states(world) == {}
    (commit,) = world.commit(name, world.tasks[name].token)
    assert commit.action is CommitAction.ABORT
    world.turn()
    assert (states(world), world.tasks, world.segments) == ({}, {}, {})


@pytest.mark.row("E14")
def test_another_policy_lets_a_running_task_finish_and_another_granularity_stops_it() -> None:
    world = timeline()
    put(world, 1, 2, 3, 330)
    world.turn()
    (name,) = running(world)
    world.policy = TimelinePolicy(segment_bytes_max=100 * MB)
    world.touched.add(day(1))
    assert world.turn().cancelled == ()
    world.commit(name, world.tasks[name].token)
    decided = world.turn()
    assert [task.chunks[0].fit for task in decided.created] == [10]

    world = timeline()
    put(world, 1, 2, 3, 330)
    world.turn()
    (name,) = running(world)
    world.policy = TimelinePolicy(granularity=Granularity(period="month"))
    decided = world.turn(is_whole=True)
    assert [stopped for stopped, _ in decided.cancelled] == [name]
    assert name not in world.tasks


@pytest.mark.row("E28")
def test_after_a_permanent_failure_other_chunks_are_planned() -> None:
    world = timeline()
    put(world, 1, 10, 5, 180)
    world.add(start_ms=day(5), end_ms=day(6), version="2", is_tombstone=True)
    world.turn()
    assert [days_of(world, name) for name in running(world)] == [[1, 2, 3, 4]]
    (name,) = running(world)
    world.failures_max = 1
    world.fail(name, world.tasks[name].token, "no memory")
    world.turn()
    assert [days_of(world, name) for name in running(world)] == [[6, 7, 8, 9]]
    assert {number: state for number, state in states(world).items() if number < 5} == dict.fromkeys(
        (1, 2, 3, 4), "deferred"
    )
    assert "no memory" in world.rows[day(1)].reason


@pytest.mark.row("E29")
def test_a_chunk_is_not_planned_until_its_commit_was_read() -> None:
    world = timeline()
    put(world, 1, 2, 24, 5)
    stale = world.snapshot()
    world.turn()
    (name,) = running(world)
    world.commit(name, world.tasks[name].token)
    (told,) = stale.sources
    left = replace(told, rows=(world.rows[day(1)],))
    assert run_cycle(replace(stale, sources=(left,))).created == ()  # its row says that it is done
    world.turn()
    told = replace(told, rows=(world.rows[day(1)],))
    assert run_cycle(replace(stale, sources=(told,))).created, "what was read before would be planned again"
    told = replace(told, unread=frozenset([day(1)]))
    assert run_cycle(replace(stale, sources=(told,))) == CycleDecisions()


def test_what_an_operator_wants_now_comes_first_even_if_it_was_set_aside() -> None:
    world = _overfull()
    world.failures_max = 1
    (name,) = running(world)
    world.fail(name, world.tasks[name].token, "no disk")
    assert world.rows[day(1)].quarantined == "no disk"
    world.turn()
    assert states(world)[1] == "deferred"
    world.urgent.add(day(1))
    decided = world.turn()
    assert [(task.start_ms, task.priority) for task in decided.created] == [(day(1), 1_000_000)]
    assert world.rows[day(1)].quarantined == ""


def test_a_hot_chunk_is_looked_at_again_when_it_has_cooled() -> None:
    world = timeline(TimelinePolicy(hot_ms=2 * DAY_MS))
    put_hours(world, 59, 61, 5)
    world.turn()
    assert states(world) == {59: "skipped", 60: "skipped"}
    row = world.rows[day(60)]
    assert row.recheck_ms is not None
    world.now_ms = row.recheck_ms
    put_hours(world, 62, 63, 5)
    world.turn()
    assert states(world) == {59: "unstable", 60: "unstable", 62: "skipped"}


def test_a_timeline_that_contradicts_itself_is_left_as_it_is() -> None:
    world = timeline()
    put(world, 1, 2, 24, 5)
    world.turn()
    put(world, 1.5, 3, 1, 5)
    decided = world.turn()
    assert [refusal.source for refusal in decided.refusals] == ["table"]
    assert "overlap" in decided.refusals[0].reason
    assert (decided.rows, decided.created, decided.dissolved) == ((), (), ())


# Commits.


@pytest.mark.row("X19")
def test_data_that_arrives_while_a_task_runs_is_carried_over() -> None:
    world = timeline()
    put(world, 5, 6, 24, 5)
    world.turn()
    (late,) = put(world, 5, 6, 1, 5, first=24)
    (name,) = running(world)
    (commit,) = world.commit(name, world.tasks[name].token)
    assert (commit.action, commit.carried) == (CommitAction.CARRY_OVER, (late.key,))
    assert sorted(one.size_bytes // MB for one in world.segments.values()) == [5, 120]
    assert {one.version for one in world.segments.values()} == {commit.version}
    world.turn()
    assert states(world) == {5: "unstable"}


@pytest.mark.row("X19")
def test_without_new_versions_for_old_segments_only_that_chunk_is_refused() -> None:
    world = timeline()
    world.carries_over = False
    put(world, 4, 5, 24, 5)
    put(world, 5, 6, 24, 5)
    world.turn()
    put(world, 5, 6, 1, 5, first=24)
    (name,) = running(world)
    actions = [commit.action for commit in world.commit(name, world.tasks[name].token)]
    assert actions == [CommitAction.PUBLISH, CommitAction.ABORT]
    assert len(world.segments) == 1 + 25


@pytest.mark.row("X20")
def test_data_replaced_while_a_task_ran_is_not_hidden() -> None:
    world = timeline()
    put(world, 5, 6, 24, 5)
    world.turn()
    (name,) = running(world)
    newer = put(world, 5, 6, 1, 7, version="9")
    (commit,) = world.commit(name, world.tasks[name].token)
    assert commit.action is CommitAction.ABORT
    world.turn()
    assert states(world) == {5: "stable"}
    assert world.rows[day(5)].chunk.keys == (newer[0].key,)


@pytest.mark.row("X21")
def test_after_a_crash_only_what_remains_is_planned() -> None:
    world = timeline(limits=QueueLimits(running_max=1))
    put_hours(world, 1, 11, 5)
    world.turn()
    assert [days_of(world, name) for name in running(world)] == [[6, 7, 8, 9, 10]]
    (name,) = running(world)
    world.commit(name, world.tasks[name].token)
    world.turn()
    (name,) = running(world)
    token = world.tasks[name].token
    world.commit(name, token, only={day(1), day(2), day(3)})
    world.fail(name, token, "the worker died", is_counted=False)
    with pytest.raises(StaleToken):
        world.commit(name, token)
    analysed = {start for _, start in world.turn().analysed}
    assert analysed == {day(1), day(2), day(3)}
    assert [days_of(world, name) for name in world.tasks] == [[4, 5]]
    assert {state for number, state in states(world).items() if number not in (4, 5)} == {"stable"}


@pytest.mark.row("E23")
def test_a_wrong_guess_of_bytes_changes_cost_only() -> None:
    world = timeline(TimelinePolicy(cost_max=4_000 * MB))
    put(world, 1, 3, 2, 900)
    world.turn()
    (name,) = running(world)
    assert world.tasks[name].entry.cost == 2 * (900 + 8) * MB
    commits = world.commit(name, world.tasks[name].token)
    assert [commit.action for commit in commits] == [CommitAction.PUBLISH] * 2
    assert sum(one.size_bytes for one in world.segments.values()) == 1_800 * MB


@pytest.mark.row("E25")
def test_a_clock_set_back_makes_no_older_versions() -> None:
    world = timeline()
    put(world, 1, 2, 24, 5, version="2024-04-01T00:00:00.000Z")
    world.turn()
    world.now_ms -= 10 * DAY_MS
    (name,) = running(world)
    (commit,) = world.commit(name, world.tasks[name].token)
    assert commit.version == "2024-04-01T00:00:00.001Z"
    world.now_ms = day(1)
    put(world, 5, 6, 24, 5)
    assert world.turn().created[0].chunks[0].recency == 1.0


def test_a_task_made_anew_at_once_is_not_one_that_others_waited_for() -> None:
    world = timeline(limits=QueueLimits(running_max=1))
    put(world, 1, 10, 5, 180)
    world.add(start_ms=day(5), end_ms=day(6), version="2", is_tombstone=True)
    world.turn()
    (first,) = running(world)
    (second,) = set(world.tasks) - {first}
    assert world.tasks[second].entry.deps == (first,)
    world.fail(first, world.tasks[first].token, "lost", is_counted=False)
    world.turn()  # the clock stands still, the chunks are the same
    assert first not in world.tasks
    assert running(world) == [second]
