"""Merges of blocks: whatever is merged with what, in which order, by which implementation, the samples are the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import MergeCancelled, MergeRefused
from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.chunks.histogram_model import CounterReset, HistogramChunk, HistogramSample
from engine.formats.prometheus.meta import BlockMeta, BlockStats, Compaction, ParentBlock, encode_meta
from engine.formats.prometheus.model import STALE_NAN, Labels
from engine.lanes.tsdb.merge.chunk_cuts import float_rank
from engine.lanes.tsdb.merge.merge import MergeRules, Partition, Winner
from engine.lanes.tsdb.merge.merge_model import merged_meta
from engine.lanes.tsdb.merge.verification import verify_block
from tests.engine.lanes.tsdb.small_blocks import (
    BUDGET_BYTES,
    LABELS,
    LAYOUT,
    WIDER_LAYOUT,
    SmallBlock,
    content,
    file_bytes,
    implemented_by,
    merged,
    naive_merge,
    small_blocks,
    ulid,
    without_deleted,
    write,
)

SERIES: Labels = LABELS[1]
TWIN, COMPILED = "_series_merge_py", "_series_merge"


def write_all(root: Path, blocks: list[SmallBlock]) -> tuple[list[Path], list[dict]]:
    folders = [write(root, number, block) for number, block in enumerate(blocks)]
    contents = [content(folder) for folder in folders]
    return folders, [without_deleted(each, block.deleted) for each, block in zip(contents, blocks, strict=True)]


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(small_blocks(), min_size=1, max_size=4), st.data())
def test_any_sequence_of_merges_gives_the_samples_of_a_naive_one(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[SmallBlock], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("sequence")
    folders, contents = write_all(root / "sources", blocks)
    expected = naive_merge(contents)
    for number in range(100, 200):
        chosen = data.draw(st.permutations(folders))[: data.draw(st.integers(1, len(folders)))]
        outcome = merged(chosen, root, number)
        folders = [folder for folder in folders if folder not in chosen]
        if outcome.meta is not None:
            verify_block(root / ulid(number))
            folders.append(root / ulid(number))
        else:
            assert not (root / ulid(number)).exists()
        if not folders or (len(folders) == 1 and number > 100):
            break
    if folders:
        (folder,) = [root / ulid(300)] if merged(folders, root, 300).meta else [None]
        assert (content(folder) if folder else {}) == expected
    else:
        assert expected == {}


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.lists(small_blocks(), min_size=1, max_size=4),
    st.sampled_from(Winner),
    st.integers(1, 6),
    st.integers(20, 400),
    st.randoms(use_true_random=False),
)
def test_both_implementations_give_the_same_bytes_in_any_order_of_sources(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[SmallBlock], winner: Winner, most: int, size: int, random
) -> None:
    pytest.importorskip("engine.lanes.tsdb.merge._series_merge")
    root = tmp_path_factory.mktemp("same")
    folders, contents = write_all(root / "sources", blocks)
    rules = MergeRules(winner=winner, samples_per_chunk=most, chunk_file_bytes=size)
    found = []
    # A small budget is one of few samples at once: what overlaps in a chain is merged window by window.
    for implementation, budget in ((TWIN, BUDGET_BYTES), (COMPILED, BUDGET_BYTES), (COMPILED, 128 << 10)):
        random.shuffle(folders)
        parent = root / str(len(found))
        with implemented_by(implementation):
            outcome = merged(folders, parent, 100, rules=rules, budget_bytes=budget)
        found.append((file_bytes(parent), outcome))
    assert found[0] == found[1] == found[2]
    if found[0][1].meta is not None:
        verify_block(root / "0" / ulid(100))
        times = {labels: samples.keys() for labels, samples in content(root / "0" / ulid(100)).items()}
        assert times == {labels: samples.keys() for labels, samples in naive_merge(contents).items()}


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(small_blocks(), min_size=1, max_size=3), st.integers(1, 4))
def test_partitions_are_disjoint_whole_together_and_nest(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[SmallBlock], count: int
) -> None:
    root = tmp_path_factory.mktemp("parts")
    folders, contents = write_all(root / "sources", blocks)
    parts = {}
    for whole in (count, 2 * count):
        for index in range(whole):
            outcome = merged(folders, root / str(whole), index, partition=Partition(index, whole))
            folder = root / str(whole) / ulid(index)
            parts[whole, index] = content(folder) if outcome.meta else {}
            if outcome.meta:
                verify_block(folder)
                used = {text for labels in parts[whole, index] for pair in labels for text in pair}
                if whole > 1 and not any(block.deleted.get(labels) for block in blocks for labels in block.chunks):
                    assert set(BlockReader(folder).index.symbols) == used
    for index in range(2 * count):
        for labels in parts[2 * count, index]:
            hashed = b"".join(text + b"\xff" for pair in labels for text in pair)
            assert xxhash.xxh64_intdigest(hashed) % (2 * count) == index
            assert labels in parts[count, index % count]
    assert sum(len(parts[count, index]) for index in range(count)) == len(naive_merge(contents))
    assert {key: value for index in range(count) for key, value in parts[count, index].items()} == naive_merge(contents)


def test_values_stand_in_one_order() -> None:
    minus_infinity, minus_one, minus_zero = 0xFFF0000000000000, 0xBFF0000000000000, 1 << 63
    smallest, one, infinity = 1, 0x3FF0000000000000, 0x7FF0000000000000
    nans = [0x7FF0000000000001, 0x7FF8000000000001, 0xFFF8000000000001]
    ascending = [STALE_NAN, *nans, minus_infinity, minus_one, minus_zero, 0, smallest, one, infinity]
    assert sorted(ascending, key=float_rank) == ascending
    assert len({float_rank(bits) for bits in ascending}) == len(ascending)


@pytest.mark.usefixtures("each_series_merge")
@pytest.mark.parametrize("swapped", [False, True])
def test_the_greater_of_two_values_stays_and_all_their_bits(tmp_path: Path, swapped: bool) -> None:
    nan = 0x7FF8000000001234
    pairs = [(STALE_NAN, nan), (nan, 5), (STALE_NAN, 0), (1 << 63, 0), (0xBFF0000000000000, 1 << 63), (7, 8)]
    one, other = [pair[swapped] for pair in pairs], [pair[not swapped] for pair in pairs]
    blocks = [
        SmallBlock({SERIES: [list(enumerate([*one, STALE_NAN])), [(50, nan)]]}),
        SmallBlock({SERIES: [list(enumerate(other))]}),
    ]
    folders, _ = write_all(tmp_path / "sources", blocks)
    outcome = merged(folders, tmp_path, 100)
    winners = [pair[1] for pair in pairs]
    assert content(tmp_path / ulid(100)) == {SERIES: dict([*enumerate([*winners, STALE_NAN]), (50, nan)])}
    assert (outcome.counts.samples_read, outcome.samples_dropped) == (14, 6)


@pytest.mark.usefixtures("each_series_merge")
def test_chunks_that_need_not_be_decoded_are_copied_whatever_is_in_them(tmp_path: Path) -> None:
    long = [(time, time) for time in range(300)]
    later = [(time, 5) for time in range(400, 500)]
    blocks = [SmallBlock({SERIES: [long]}), SmallBlock({SERIES: [long, later]}), SmallBlock({SERIES: [later]})]
    folders, _ = write_all_long(tmp_path / "sources", blocks)
    merged(folders, tmp_path, 100)
    block = BlockReader(tmp_path / ulid(100))
    (series,) = block.index.series()
    assert [block.chunk(meta).sample_count for meta in series.chunks] == [300, 100]


def write_all_long(root: Path, blocks: list[SmallBlock]) -> tuple[list[Path], None]:
    return [write(root, number, block) for number, block in enumerate(blocks)], None


def histograms(
    reset: CounterReset, *samples: tuple[int, int], is_float: bool = False, wide: bool = False
) -> HistogramChunk:
    """A chunk of (time, observations), all of them in the first bucket."""
    buckets = 3 if wide else 2
    found = [HistogramSample(time, count, 0, count, (count, *[0] * (buckets - 1))) for time, count in samples]
    return HistogramChunk(is_float, reset, WIDER_LAYOUT if wide else LAYOUT, tuple(found))


def merged_histograms(root: Path, *columns: list[HistogramChunk]) -> list[tuple[CounterReset, list[int]]]:
    """Merge a series of each column; what the result's chunks say of resets, and their times."""
    folders, _ = write_all_long(root / "sources", [SmallBlock({SERIES: list(column)}) for column in columns])
    merged(folders, root, 100)
    verify_block(root / ulid(100))
    block = BlockReader(root / ulid(100))
    (series,) = block.index.series()
    chunks = [block.histograms(meta, block.chunk(meta)) for meta in series.chunks]
    return [(chunk.counter_reset, [sample.time_ms for sample in chunk.samples]) for chunk in chunks]


UNKNOWN, NO_RESET, RESET, GAUGE = CounterReset


@pytest.mark.usefixtures("each_series_merge")
def test_histograms_of_replicas_are_merged_and_a_reset_begins_a_chunk(tmp_path: Path) -> None:
    one = [histograms(UNKNOWN, (0, 1), (2, 3)), histograms(RESET, (4, 4), (6, 5))]
    other = [histograms(UNKNOWN, (1, 2), (2, 3), (5, 4))]
    assert merged_histograms(tmp_path, one, other) == [(UNKNOWN, [0, 1, 2]), (RESET, [4, 5, 6])]


@pytest.mark.usefixtures("each_series_merge")
def test_a_reset_between_replicas_is_seen_but_not_vouched_for(tmp_path: Path) -> None:
    one, other = [histograms(UNKNOWN, (0, 5), (2, 6))], [histograms(UNKNOWN, (1, 1), (3, 7))]
    assert merged_histograms(tmp_path, one, other) == [(UNKNOWN, [0]), (UNKNOWN, [1, 2, 3])]


@pytest.mark.usefixtures("each_series_merge")
def test_layouts_kinds_and_gauges_do_not_share_a_chunk(tmp_path: Path) -> None:
    wide = [histograms(UNKNOWN, (0, 1), (3, 9)), histograms(NO_RESET, (4, 9), wide=True)]
    floats = [histograms(UNKNOWN, (1, 1), (5, 9), is_float=True)]
    gauges = [histograms(GAUGE, (2, 9), (6, 1))]
    found = merged_histograms(tmp_path, wide, floats, gauges)
    resets = (UNKNOWN, UNKNOWN, GAUGE, UNKNOWN, NO_RESET, UNKNOWN, GAUGE)
    assert found == [(reset, [time]) for time, reset in enumerate(resets)]


@pytest.mark.usefixtures("each_series_merge")
def test_a_merge_that_is_cancelled_stops_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    folders, _ = write_all(tmp_path / "sources", [SmallBlock({SERIES: [[(1, 1)]]}), SmallBlock({SERIES: [[(2, 1)]]})])
    for asked_before in range(4):
        answers = iter([False] * asked_before + [True])
        with pytest.raises(MergeCancelled):
            merged(folders, tmp_path / "out", 100, is_cancelled=lambda answers=answers: next(answers))
        assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.usefixtures("each_series_merge")
def test_a_merge_reports_progress(tmp_path: Path) -> None:
    folders, _ = write_all(tmp_path / "sources", [SmallBlock({SERIES: [[(1, 1)]]}), SmallBlock({SERIES: [[(2, 1)]]})])
    told: list[tuple[int, int]] = []
    merged(folders, tmp_path, 100, report_progress=lambda done, whole: told.append((done, whole)))
    assert told[-1][0] == told[-1][1] > 0


@pytest.mark.usefixtures("each_series_merge")
def test_where_everything_is_deleted_there_is_no_block(tmp_path: Path) -> None:
    block = SmallBlock({SERIES: [[(1, 1), (2, 2)]]}, {SERIES: [(0, 2)]})
    folders, _ = write_all(tmp_path / "sources", [block, block])
    outcome = merged(folders, tmp_path / "out", 100)
    assert outcome.meta is None
    assert (outcome.counts.samples_read, outcome.samples_dropped) == (4, 4)
    assert list((tmp_path / "out").iterdir()) == []


def test_what_cannot_be_merged_is_refused(tmp_path: Path) -> None:
    folders, _ = write_all(tmp_path / "sources", [SmallBlock({SERIES: [[(1, 1)]]})] * 2)
    with pytest.raises(MergeRefused, match="no blocks"):
        merged([], tmp_path / "out", 100)
    with pytest.raises(MergeRefused, match="twice"):
        merged(folders * 2, tmp_path / "out", 100)
    with pytest.raises(MergeRefused, match="budget"):
        merged(folders, tmp_path / "out", 100, budget_bytes=60)
    with pytest.raises(MergeRefused, match="partition"):
        Partition(2, 2)
    with pytest.raises(MergeRefused, match="samples_per_chunk"):
        MergeRules(samples_per_chunk=0)


def source_meta(number: int, times: tuple[int, int], **compaction: object) -> BlockMeta:
    given = {"level": 1, "sources": (ulid(number),)} | compaction
    return BlockMeta(ulid(number), *times, BlockStats(), Compaction(**given))  # type: ignore[arg-type]


def test_a_result_has_its_sources_parents_and_hints() -> None:
    hints = ("from-out-of-order", "from-stale-series")
    first = source_meta(1, (0, 20), level=3, sources=(ulid(7), ulid(8)), hints=hints)
    second = source_meta(2, (10, 40), hints=("from-out-of-order",))
    found = merged_meta(ulid(9), [first, second])
    assert (found.min_time_ms, found.max_time_ms) == (0, 40)
    assert found.compaction == Compaction(
        level=4,
        sources=(ulid(2), ulid(7), ulid(8)),
        parents=(ParentBlock(ulid(1), 0, 20), ParentBlock(ulid(2), 10, 40)),
        hints=("from-out-of-order", "from-stale-series"),
    )
    third = source_meta(3, (10, 40))
    assert merged_meta(ulid(9), [first, third]).compaction.hints == ("from-stale-series",)


def test_a_block_that_is_cleaned_up_starts_over_but_a_part_of_it_does_not() -> None:
    source = source_meta(1, (0, 20), level=2, sources=(ulid(7), ulid(8)))
    parents = (ParentBlock(ulid(1), 0, 20),)
    assert merged_meta(ulid(9), [source]).compaction == Compaction(1, (ulid(9),), parents)
    assert merged_meta(ulid(9), [source], is_part=True).compaction == Compaction(3, (ulid(7), ulid(8)), parents)


@pytest.mark.usefixtures("each_series_merge")
def test_kinds_of_samples_are_counted_where_a_source_counts_them(tmp_path: Path) -> None:
    blocks = [SmallBlock({SERIES: [[(1, 1), (2, 2)], histograms(UNKNOWN, (3, 1))]}), SmallBlock({SERIES: [[(2, 2)]]})]
    folders, _ = write_all(tmp_path / "sources", blocks)
    outcome = merged(folders, tmp_path, 100)
    assert outcome.meta is not None
    assert outcome.meta.stats == BlockStats(num_samples=3, num_series=1, num_chunks=2)
    rewritten = BlockReader(folders[0]).meta
    stats = dataclasses.replace(rewritten.stats, num_float_samples=2, num_histogram_samples=1)
    (folders[0] / "meta.json").write_bytes(encode_meta(dataclasses.replace(rewritten, stats=stats)))
    again = merged(folders, tmp_path, 101).meta
    assert again is not None
    assert (again.stats.num_float_samples, again.stats.num_histogram_samples) == (2, 1)
