"""Single rules: known priorities, visibility inside an entry, commits, versions, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.lanes.tables.plan.columns import FOREVER_END_MS
from engine.lanes.tables.plan.commit import CommitAction, PlannedChunk, decide_commit, decide_commits, digest_of
from engine.lanes.tables.plan.granularity import DAY_MS, HOUR_MS
from engine.lanes.tables.plan.layout import build_layout
from engine.lanes.tables.plan.model import Segment
from engine.lanes.tables.plan.plan import plan_timeline, segments_of_time_chunks
from engine.lanes.tables.plan.policy import MB, QueueLimits, Spanning, TimelinePolicy
from engine.lanes.tables.plan.visibility import instant_version, version_above
from engine.schedule.errors import PolicyRefused, SnapshotRefused

FIRST_MS = 1_706_745_600_000
POLICY = TimelinePolicy()


def one(key: int, **told: object) -> Segment:
    """Return a segment of a day."""
    known = {"start_ms": FIRST_MS, "end_ms": FIRST_MS + DAY_MS, "version": "1", "partition": key, "size_bytes": MB}
    return Segment(key=key, **(known | told))  # type: ignore[arg-type]


def keys(*segments: Segment) -> tuple[int, ...]:
    """Return what is seen in the first chunk."""
    found = plan_timeline("t", segments, POLICY, now_ms=0).chunks
    return found[0].keys if found else ()


@pytest.mark.parametrize(
    ("count", "size", "priority", "age"),
    [
        (1_000, 0.02, 0.696, 0),
        (100, 5, 0.654, 0),
        (24, 5, 0.554, 0),
        (24, 5, 0.479, 30),
        (24, 5, 0.404, 365),
        (12, 20, 0.455, 0),
        (5, 4, 0.332, 0),
        (1, 2_600, 0.312, 0),
        (2, 200, 0.184, 0),
        (2, 200, 0.034, 365),
        (3, 330, 0.170, 0),
        (1, 501, 0.150, 0),
    ],
)
def test_priorities_are_those_of_the_reference(count: int, size: float, priority: float, age: int) -> None:
    segments = [one(key, size_bytes=round(size * MB)) for key in range(count)]
    (chunk,) = plan_timeline("t", segments, POLICY, now_ms=FIRST_MS + (1 + age) * DAY_MS).chunks
    assert abs(chunk.priority / 1e6 - priority) < 0.0006  # the sheet adds up terms that are rounded already


def test_a_tie_is_rounded_to_the_even_millionth() -> None:
    policy = TimelinePolicy(weights=(0, 50, 50, 0), segment_bytes_max=999_997)
    segments = [one(1, size_bytes=1_000_000)]
    (chunk,) = plan_timeline("t", segments, policy, now_ms=FIRST_MS).chunks
    assert chunk.priority == 2  # a half of 0.000003 is 0.0000015


# Inside one entry.


def test_a_group_with_a_higher_minor_version_hides_what_it_was_made_of_once_it_is_whole() -> None:
    old = [one(key) for key in range(3)]
    new = [
        one(10 + number, partition=32_768 + number, minor_version=1, root_start=0, root_end=2, group_size=2)
        for number in range(2)
    ]
    assert keys(*old) == (0, 1, 2)
    assert keys(*old, new[0]) == (0, 1, 2)
    assert keys(*old, *new) == (2, 10, 11)
    assert keys(*old, new[1]) == (0, 1, 2)  # a member was lost: what it had hidden is seen again
    newer = one(20, partition=32_770, minor_version=2, root_start=0, root_end=3)
    assert keys(*old, *new, newer) == (20,)


def test_rewritten_core_partitions_count_as_known() -> None:
    old = [one(0, core_partitions=3), one(2, core_partitions=3)]
    new = one(9, partition=32_768, minor_version=1, root_start=0, root_end=2, core_partitions=3)
    assert keys(*old) == ()
    assert keys(*old, new) == (2, 9)


def test_files_of_different_folders_are_never_counted_as_one() -> None:
    segments = [one(key, folder=f"region={key % 3}") for key in range(6)]
    (chunk,) = plan_timeline("t", segments, POLICY, now_ms=0).chunks
    assert (chunk.segments, chunk.fit, chunk.out) == (6, 3, 3)
    (chunk,) = plan_timeline("t", segments[:3], POLICY, now_ms=0).chunks
    assert chunk.action == "stable"


def test_long_intervals_are_shared_out_exactly() -> None:
    year = 366 * DAY_MS
    segments = [one(1, end_ms=FIRST_MS + year, size_bytes=(1 << 50) - 1)]
    chunks = plan_timeline("t", segments, POLICY, now_ms=0).chunks
    assert len(chunks) == 366
    assert sum(chunk.bytes for chunk in chunks) == (1 << 50) - 1


# What is refused.


@pytest.mark.parametrize(
    ("segments", "words"),
    [
        ([one(7, end_ms=FIRST_MS)], "segment 7 has an empty interval"),
        ([one(7, end_ms=FIRST_MS - 5)], "segment 7 has an empty interval"),
        ([one(7, end_ms=FOREVER_END_MS + 1)], "segment 7 has an interval out of bounds"),
        ([one(7, end_ms=1 << 70)], "segment 7 has end_ms "),
        ([one(7, size_bytes=-3)], "segment 7 has a size of -3"),
        ([one(7, size_bytes=1 << 80)], "segment 7 has a size of"),
        ([one(7, partition=-1)], "segment 7 has partition -1"),
        ([one(7), one(7, partition=8)], "segment 7 appears more than once"),
        ([one(7), one(8, partition=7)], "segments 7 and 8 are both partition 7"),
        ([one(key, size_bytes=1 << 50) for key in range(5_000)], "the sum of the segments exceeds"),
        ([one(1), one(2, end_ms=FIRST_MS + HOUR_MS)], "overlap"),
        ([one(1), one(2, start_ms=FIRST_MS + HOUR_MS, core_partitions=9)], "overlap"),
    ],
)
def test_impossible_segments_are_refused_by_name(segments: list[Segment], words: str) -> None:
    with pytest.raises(SnapshotRefused, match=words):
        plan_timeline("t", segments, POLICY, now_ms=0)


def test_lists_that_disagree_about_a_segment_are_refused() -> None:
    assert segments_of_time_chunks([[one(1)], [one(1), one(2)]]) == [one(1), one(2)]
    with pytest.raises(SnapshotRefused, match="segment 1"):
        segments_of_time_chunks([[one(1)], [one(1, size_bytes=2)]])


@pytest.mark.parametrize(
    "told",
    [
        {"small_cost": 3, "cost_max": 5},
        {"weights": (50, 20, 10, 15)},
        {"weights": (120, -20, 0, 0)},
        {"segment_bytes_max": 0},
        {"spanning": Spanning.TRIM, "partial_visibility": False},
        {"excluded": ((5, 5, "no"),)},
    ],
)
def test_policies_that_cannot_be_kept_are_refused(told: dict[str, object]) -> None:
    with pytest.raises(PolicyRefused):
        TimelinePolicy(**told)  # type: ignore[arg-type]


@pytest.mark.parametrize("told", [{"waiting_max": 0}, {"waiting_max": 5, "low_water": 5}, {"skips_max": -1}])
def test_limits_that_cannot_be_kept_are_refused(told: dict[str, int]) -> None:
    with pytest.raises(PolicyRefused):
        QueueLimits(**told)


def test_fingerprints_differ_where_results_do() -> None:
    base = TimelinePolicy()
    assert base.fingerprint() == TimelinePolicy().fingerprint()
    for told in ({"segment_bytes_max": MB}, {"output_shape": "sort: a"}):
        other = replace(base, **told)  # type: ignore[arg-type]
        assert other.output_fingerprint() != base.output_fingerprint()
        assert other.fingerprint() != base.fingerprint()
    weighed = replace(base, weights=(25, 25, 25, 25))
    assert weighed.output_fingerprint() == base.output_fingerprint()
    assert weighed.fingerprint() != base.fingerprint()
    assert replace(base, cost_max=9_000 * MB).fingerprint() == base.fingerprint()


# Commits.


def planned(*segments: Segment) -> PlannedChunk:
    (chunk,) = plan_timeline("t", segments, POLICY, now_ms=0).chunks
    return PlannedChunk.of(chunk)


def test_the_digest_of_pieces_is_that_of_the_plan() -> None:
    segments = [one(1), one(2, size_bytes=None), one(3, version="2", end_ms=FIRST_MS + HOUR_MS, is_tombstone=True)]
    layout = build_layout(segments, POLICY)
    assert digest_of(layout.pieces_of(0)[::-1]) == f"{int(layout.digest[0]):016x}"
    assert digest_of([]) == f"{0:016x}"
    for changed in ({"version": "2"}, {"size_bytes": 3}, {"partition": 9}, {"end_ms": FIRST_MS + 5}):
        other = build_layout([replace(segments[0], **changed)], POLICY)  # type: ignore[arg-type]
        assert other.digest[0] != build_layout(segments[:1], POLICY).digest[0]


LATE = one(9)


@pytest.mark.parametrize(
    ("now", "action", "words"),
    [
        ([one(1), one(2)], CommitAction.PUBLISH, "nothing changed"),
        ([one(1), one(2), LATE], CommitAction.CARRY_OVER, "1 segments arrived"),
        ([one(1)], CommitAction.ABORT, "removed or hidden"),
        ([one(1), one(2, size_bytes=5)], CommitAction.ABORT, "removed or hidden"),
        ([one(1), one(2), replace(LATE, version="2")], CommitAction.ABORT, "removed or hidden"),
        (
            [one(1), one(2), replace(LATE, core_partitions=20, version="2")],
            CommitAction.ABORT,
            "waits for other segments",
        ),
        ([one(1), one(2), replace(LATE, end_ms=FIRST_MS + 5)], CommitAction.ABORT, "the timeline is inconsistent"),
    ],
)
def test_a_commit_looks_at_what_came_and_went(now: list[Segment], action: CommitAction, words: str) -> None:
    found = decide_commit(planned(one(1), one(2)), now, now_ms=FIRST_MS)
    assert found.action is action
    assert words in found.reason
    assert (found.version > "1") == (action is not CommitAction.ABORT)


@pytest.mark.parametrize(
    ("late", "words"),
    [
        ({"start_ms": FIRST_MS + 2 * HOUR_MS, "end_ms": FIRST_MS + 2 * DAY_MS}, "extends into other chunks"),
        ({"start_ms": FIRST_MS + 2 * HOUR_MS, "is_tombstone": True}, "tombstone 9"),
        ({"start_ms": FIRST_MS + 2 * HOUR_MS, "version": "0"}, "with another version"),
    ],
)
def test_what_came_beside_it_is_carried_over_only_if_it_can_be(late: dict[str, object], words: str) -> None:
    early = one(1, end_ms=FIRST_MS + HOUR_MS)
    found = decide_commit(planned(early), [early, replace(LATE, **late)], now_ms=FIRST_MS)  # type: ignore[arg-type]
    assert found.action is CommitAction.ABORT
    assert words in found.reason


def test_commits_abort_above_an_incomplete_version_unless_it_was_given_up() -> None:
    now = [one(1), one(5, version="0", core_partitions=20)]
    chunk = planned(one(1))
    assert decide_commit(chunk, now, now_ms=FIRST_MS).action is CommitAction.ABORT
    assert decide_commit(chunk, now, now_ms=FIRST_MS, given_up={5}).action is CommitAction.PUBLISH


def test_chunks_that_share_a_file_are_published_together_where_files_are_seen_whole() -> None:
    wide = one(1, end_ms=FIRST_MS + 2 * DAY_MS, size_bytes=600 * MB)
    alone = one(2, start_ms=FIRST_MS + 3 * DAY_MS, end_ms=FIRST_MS + 4 * DAY_MS, size_bytes=600 * MB)
    chunks = plan_timeline("t", [wide, alone], POLICY, now_ms=0).chunks
    told = [PlannedChunk.of(chunk) for chunk in chunks]
    late = one(7, start_ms=FIRST_MS + DAY_MS, end_ms=FIRST_MS + 2 * DAY_MS, version="2")
    now = {chunk.start_ms: [wide] for chunk in chunks[:2]} | {chunks[2].start_ms: [alone]}
    now[chunks[1].start_ms] = [wide, late]

    def actions(*, partial_visibility: bool) -> list[str]:
        found = decide_commits(told, now, now_ms=FIRST_MS, partial_visibility=partial_visibility)
        return [str(commit.action) for commit in found]

    assert actions(partial_visibility=True) == ["publish", "abort", "publish"]
    assert actions(partial_visibility=False) == ["abort", "abort", "publish"]


def test_versions_are_instants_and_always_above_what_is_there() -> None:
    assert instant_version(FIRST_MS) == "2024-02-01T00:00:00.000Z"
    assert version_above(FIRST_MS, ["2024-01-01T00:00:00.000Z"]) == "2024-02-01T00:00:00.000Z"
    assert version_above(FIRST_MS, ["2024-02-01T00:00:00.000Z"]) == "2024-02-01T00:00:00.001Z"
    assert version_above(FIRST_MS, []) == "2024-02-01T00:00:00.000Z"
    for strange in ("v9", "zz", "9999-12-31T23:59:59.999Z", "2999-99-99T00:00:00.000Z"):
        assert version_above(FIRST_MS, [strange]) > strange
