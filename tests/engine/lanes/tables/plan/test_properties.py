"""What holds for any timeline (I1 to I11), beside a model that does every hour and every segment by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.lanes.tables.plan.candidates import shares_data
from engine.lanes.tables.plan.colours import shared_keys
from engine.lanes.tables.plan.granularity import HOUR_MS, Granularity
from engine.lanes.tables.plan.model import Action, Segment, TimelinePlan
from engine.lanes.tables.plan.plan import plan_timeline, segments_of_time_chunks
from engine.lanes.tables.plan.policy import MB, Align, Spanning, TimelinePolicy
from engine.lanes.tables.plan.scoring import exact_priority

FIRST_MS = 1_706_745_600_000
NOW_MS = FIRST_MS + 60 * 24 * HOUR_MS
HOURS = 8 * 24
FEW = settings(max_examples=150, deadline=None)

entries = st.tuples(
    st.integers(0, HOURS),
    st.sampled_from([1, 2, 6, 24, 24, 30, 72, 168]),
    st.integers(1, 8),
    st.sampled_from([0, 1, 5, 150, 330, 500, 501, 1_300]),
    st.sampled_from(["data", "data", "data", "tombstone", "incomplete"]),
    st.sampled_from(["", "", "region=eu"]),
)
policies = st.builds(
    TimelinePolicy,
    granularity=st.sampled_from(
        [
            Granularity(),
            Granularity(timezone="America/New_York"),
            Granularity(period="PT6H"),
            Granularity(period="week"),
            Granularity(period="all"),
        ]
    ),
    cost_max=st.sampled_from([2_000 * MB, 4_000 * MB, 50_000 * MB]),
    spanning=st.sampled_from(Spanning),
    align=st.sampled_from([Align.TOUCHED, Align.TOUCHED, Align.ALWAYS]),
)


@st.composite
def timelines(draw: st.DrawFn) -> list[Segment]:
    """Return segments of a few entries, each newer than those before."""
    found: list[Segment] = []
    for number, (start, length, count, size, kind, folder) in enumerate(draw(st.lists(entries, max_size=9))):
        for partition in range(1 if kind == "tombstone" else count):
            found.append(
                Segment(
                    key=len(found) + 1,
                    start_ms=FIRST_MS + start * HOUR_MS,
                    end_ms=FIRST_MS + (start + length) * HOUR_MS,
                    version=f"{number:03d}",
                    partition=partition,
                    core_partitions=count + (kind == "incomplete") if kind != "tombstone" else 0,
                    size_bytes=0 if kind == "tombstone" else size * MB + partition,
                    is_tombstone=kind == "tombstone",
                    folder=folder,
                )
            )
    return found


def plan(segments: Sequence[Segment], policy: TimelinePolicy, **told: object) -> TimelinePlan:
    return plan_timeline("table", segments, policy, now_ms=NOW_MS, **told)  # type: ignore[arg-type]


def seen_by_hour(segments: Sequence[Segment]) -> dict[int, list[Segment]]:
    """Return what is seen in each hour: the members of the complete entry with the highest version."""
    members: dict[tuple[int, int, str], list[Segment]] = {}
    for one in segments:
        members.setdefault((one.start_ms, one.end_ms, one.version), []).append(one)
    found: dict[int, list[Segment]] = {}
    for (start_ms, end_ms, _), ones in sorted(members.items(), key=lambda entry: entry[0][2]):
        if len(ones) >= ones[0].core_partitions:
            found.update(dict.fromkeys(range(start_ms, end_ms, HOUR_MS), ones))
    return found


@pytest.mark.slow
@pytest.mark.row("tables-invariant-2")
@FEW
@given(timelines(), policies)
def test_every_chunk_equals_a_count_by_hour(segments: list[Segment], policy: TimelinePolicy) -> None:
    hours = seen_by_hour(segments)
    found = plan(segments, policy)
    most = policy.segment_bytes_max
    covered: list[int] = []
    for chunk in found.chunks:
        inside = [hour for hour in range(chunk.start_ms, chunk.end_ms, HOUR_MS) if hour in hours]
        covered += inside
        data = {one.key: one for hour in inside for one in hours[hour] if not one.is_tombstone}
        every = {one.key for hour in inside for one in hours[hour]}
        parts: dict[str, int] = {}
        total = Fraction(0)
        for hour in inside:
            for one in hours[hour]:
                if not one.is_tombstone:
                    share = one.size_bytes * (hour + HOUR_MS - one.start_ms) // (one.end_ms - one.start_ms)
                    share -= one.size_bytes * (hour - one.start_ms) // (one.end_ms - one.start_ms)
                    parts[one.folder] = parts.get(one.folder, 0) + share
                    total += share
        sums: dict[str, int] = {}
        for one in data.values():
            sums[one.folder] = sums.get(one.folder, 0) + one.size_bytes
        assert (chunk.keys, chunk.segments, chunk.bytes) == (tuple(sorted(every)), len(data), total)
        assert chunk.fit == max(1, sum(max(1, -(-size // most)) for size in sums.values()))
        assert chunk.out == max(1, sum(max(1, -(-size // most)) for size in parts.values()))
        elsewhere = {
            one.key: [hour for hour in hours if hour not in inside and one in hours[hour]] for one in data.values()
        }
        assert chunk.shared == tuple(sorted(key for key, others in elsewhere.items() if others))
        assert chunk.has_overlap_prior == any(min(others) < chunk.start_ms for others in elsewhere.values() if others)
        assert chunk.has_overlap_later == any(max(others) >= chunk.end_ms for others in elsewhere.values() if others)
        assert chunk.reaches_start == (chunk.start_ms in hours)
        assert chunk.reaches_end == (chunk.end_ms - HOUR_MS in hours)
        assert chunk.reason
    assert sorted(covered) == sorted(hours)  # and so I2: every share is in exactly one chunk


@pytest.mark.slow
@pytest.mark.row("tables-invariant-1")
@FEW
@given(timelines(), policies, st.randoms(use_true_random=False))
def test_order_and_form_of_the_input_have_no_effect(
    segments: list[Segment], policy: TimelinePolicy, chance: Random
) -> None:
    mixed = list(segments)
    chance.shuffle(mixed)
    by_chunk = [mixed[:4], mixed[2:], mixed]
    assert plan(segments, policy) == plan(mixed, policy) == plan(segments_of_time_chunks(by_chunk), policy)


@pytest.mark.slow
@pytest.mark.row(
    "tables-invariant-3", "tables-invariant-4", "tables-invariant-5", "tables-invariant-6", "tables-invariant-7"
)
@FEW
@given(timelines(), policies)
def test_tasks_satisfy_their_invariants(segments: list[Segment], policy: TimelinePolicy) -> None:
    found = plan(segments, policy)
    taken = [chunk.start_ms for task in found.tasks for chunk in task.chunks]
    assert len(set(taken)) == len(taken)  # I3
    assert {chunk.start_ms for chunk in found.chunks if chunk.action is Action.COMPACT} <= set(taken)
    for task in found.tasks:
        actions = {chunk.action for chunk in task.chunks}
        assert Action.COMPACT in actions  # I4
        assert actions <= {Action.COMPACT, Action.NEUTRAL}
        for one, other in zip(task.chunks, task.chunks[1:], strict=False):
            assert one.end_ms == other.start_ms
            assert one.reaches_end
            assert other.reaches_start
            if not shares_data(one, other):  # they were joined because both were small
                assert task.cost < 2 * policy.small_cost  # I6
        assert task.cost == sum(chunk.cost for chunk in task.chunks)
        assert task.is_over_limit == (task.cost > policy.cost_max)  # I5
        assert not task.is_over_limit or len(task.chunks) == 1
        assert 0 < task.priority <= 1_000_000  # I10
        assert task.reason
    by_name = {task.name: task for task in found.tasks}
    for place, task in enumerate(found.tasks):
        for other in found.tasks[place + 1 :]:
            meets = not shared_keys(task.chunks).isdisjoint(shared_keys(other.chunks))
            assert meets == (other.name in task.deps or task.name in other.deps)  # I7
            assert not (other.name in task.deps and task.name in other.deps)
            assert not meets or task.colour != other.colour
        assert all(by_name[name].colour < task.colour for name in task.deps)


@pytest.mark.slow
@FEW
@given(timelines(), policies.filter(lambda policy: policy.spanning is Spanning.CLOSURE))
def test_whole_files_are_never_cut_between_tasks(segments: list[Segment], policy: TimelinePolicy) -> None:
    found = plan(segments, replace(policy, partial_visibility=False))
    holder: dict[int, str] = {}
    for task in found.tasks:
        for chunk in task.chunks:
            for key in chunk.shared:
                assert holder.setdefault(key, task.name) == task.name
    outside = {chunk.start_ms for chunk in found.chunks} - {chunk.start_ms for t in found.tasks for chunk in t.chunks}
    for chunk in found.chunks:
        if chunk.start_ms in outside:
            assert holder.keys().isdisjoint(chunk.shared)


@pytest.mark.slow
@pytest.mark.row("tables-invariant-8", "tables-invariant-9")
@FEW
@given(timelines(), policies)
def test_the_second_plan_is_empty_and_a_crash_loses_nothing(segments: list[Segment], policy: TimelinePolicy) -> None:
    first = plan(segments, policy)
    chunks = [chunk for task in first.tasks for chunk in task.chunks]
    half = chunks[::2]
    wanted = {chunk.start_ms for chunk in first.chunks if chunk.action is Action.COMPACT}
    after, outputs = _rewritten(segments, half)
    again = plan(after, policy, outputs=outputs)
    left = {chunk.start_ms for chunk in again.chunks if chunk.action is Action.COMPACT}
    if policy.align is not Align.ALWAYS:  # there a neighbour that was done leaves nothing to align
        assert left == wanted - {chunk.start_ms for chunk in half}
    after, outputs = _rewritten(segments, chunks)
    assert plan(after, policy, outputs=outputs).tasks == ()


def _rewritten(
    segments: Sequence[Segment], chunks: Sequence[object]
) -> tuple[list[Segment], dict[int, frozenset[int]]]:
    found = list(segments)
    outputs: dict[int, frozenset[int]] = {}
    for chunk in chunks:
        made = [
            Segment(
                key=len(found) + 1 + number,
                start_ms=chunk.start_ms,  # type: ignore[attr-defined]
                end_ms=chunk.end_ms,  # type: ignore[attr-defined]
                version="999",
                partition=number,
                core_partitions=chunk.out,  # type: ignore[attr-defined]
                size_bytes=_share(chunk.bytes, chunk.out, number),  # type: ignore[attr-defined]
            )
            for number in range(chunk.out)  # type: ignore[attr-defined]
        ]
        found += made
        outputs[chunk.start_ms] = frozenset(one.key for one in made)  # type: ignore[attr-defined]
    return found, outputs


def _share(total: int, count: int, number: int) -> int:
    return total * (number + 1) // count - total * number // count


@pytest.mark.row("tables-invariant-10", "tables-invariant-11")
@FEW
@given(
    st.integers(0, 5_000),
    st.integers(0, 10**14),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
    st.one_of(st.sampled_from([0, 30 * 24 * HOUR_MS, 300 * 24 * HOUR_MS]), st.integers(0, 10**13)),
)
def test_priorities_are_exact_and_grow_with_the_gain(
    saved: int, bytes_: int, largest: int, more: int, age_ms: int
) -> None:
    policy = TimelinePolicy()

    def priority(**changed: int) -> int:
        told = {"saved": saved, "bytes_": bytes_, "largest": largest, "spanning": 0, "age_ms": age_ms} | changed
        return exact_priority(policy, **told)

    assert 0 < priority() <= 1_000_000
    assert priority(saved=saved + 1) >= priority()
    assert priority(bytes_=bytes_ + more) <= priority()
    assert priority(largest=largest + more) >= priority()
    assert priority(age_ms=age_ms + more) <= priority()


@pytest.mark.slow
@FEW
@given(timelines(), policies)
def test_priorities_of_a_plan_are_the_exact_ones(segments: list[Segment], policy: TimelinePolicy) -> None:
    for chunk in plan(segments, policy).chunks:
        if chunk.action is Action.COMPACT:
            is_aligning = chunk.cause == "aligned"
            spanning = round(Fraction(chunk.alignment) * chunk.bytes)
            exact = exact_priority(
                policy,
                saved=0 if is_aligning else max(0, chunk.segments - chunk.out),
                bytes_=chunk.bytes,
                largest=chunk.largest_bytes,
                spanning=spanning,
                age_ms=max(0, NOW_MS - chunk.end_ms),
            )
            assert abs(chunk.priority - exact) <= 1  # alignment is told to six digits only
