"""Small blocks that need much memory: refused by name before it is allocated, by the merge and by the verifier."""

from __future__ import annotations

import json
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from engine.core.errors import LimitExceeded, MergeRefused
from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.chunks.bit_stream import VAR_WIDTHS
from engine.formats.prometheus.chunks.chunk_files import HEADER_BYTES
from engine.formats.prometheus.chunks.histograms import decode_histograms
from engine.formats.prometheus.errors import Inconsistent
from engine.formats.prometheus.index import index_reader, index_writer, symbol_table
from engine.formats.prometheus.index.index_reader import IndexReader
from engine.formats.prometheus.index.index_writer import IndexWriter
from engine.formats.prometheus.index.series_batch import series_batch
from engine.lanes.tsdb.merge import overlaps
from engine.lanes.tsdb.merge.merge import MergeRules, Partition, Winner, merge_blocks
from engine.lanes.tsdb.merge.merge_model import StoredChunk
from engine.lanes.tsdb.merge.overlaps import PlacedChunk, merge_chunks
from engine.lanes.tsdb.merge.series_budget import CHUNK_BYTES, SeriesBudget
from engine.lanes.tsdb.merge.verification import verify_block
from tests.engine.lanes.tsdb import factories
from tests.engine.lanes.tsdb.factories import (
    block_files,
    index_bytes,
    meta_document,
    packed,
    record,
    series_body,
    tombstones_bytes,
)
from tests.engine.lanes.tsdb.small_blocks import BUDGET_BYTES, SmallBlock, content, encoded, file_bytes, ulid, write

RESULT = ulid(7)
VALUE = b"v" * (64 << 10)
SYMBOLS = [*(b"n%04d" % number for number in range(200)), VALUE]
LABELS = [ref for name in range(200) for ref in (name, 200)]
"""200 labels of one long value: some hundred bytes of the series, 12 MiB of the table of lists."""


def block(root: Path, **files: bytes) -> Path:
    """Write a block without deleted samples, its files replaced by these."""
    return factories.write_block(root, block_files() | {"tombstones": tombstones_bytes()} | files)


def merge(folder: Path, **options: Any) -> object:
    given = {"rules": MergeRules(), "budget_bytes": BUDGET_BYTES} | options
    return merge_blocks([folder], folder.parent / "out", RESULT, **given)


@pytest.mark.parametrize("kernel", ["_postings_lists_py", "_postings_lists"])
def test_a_long_value_of_many_labels_is_not_held_once_for_each(tmp_path: Path, kernel: str) -> None:
    made = pytest.importorskip(f"engine.formats.prometheus.index.{kernel}").format_lists
    held: list[int] = []

    def spy(*arguments: Any) -> Any:
        answer = made(*arguments)
        held.append(len(answer[1]))
        return answer

    with mock.patch.object(index_writer, "format_lists", spy):
        writer = IndexWriter(tmp_path / "index", SYMBOLS)
        writer.add(series_batch([(LABELS, [])]))
        writer.finish()
    assert sum(held) > 200 * len(VALUE)
    assert max(held) < index_writer.TABLE_BYTES_AT_ONCE + 2 * len(VALUE)
    assert sum(1 for _ in IndexReader(tmp_path / "index").postings_lists()) == 201


def test_a_block_whose_postings_offsets_would_explode_is_refused(tmp_path: Path) -> None:
    series = [series_body(LABELS, [(1000, 1030, 8)])]
    index = index_bytes(symbols=SYMBOLS, series=series, postings=(), label_indices=())
    meta = meta_document(stats={"numSamples": 4, "numSeries": 1, "numChunks": 1})
    folder = block(tmp_path, index=index)
    (folder / "meta.json").write_text(json.dumps(meta))
    for refuse in (verify_block, merge):
        with pytest.raises(Inconsistent) as refused:
            refuse(folder)
        assert (refused.value.object_name, refused.value.section) == (factories.ULID, "index")
    assert list((tmp_path / "out").iterdir()) == []


PARTS = {"whole": Partition(), "in parts": Partition(0, 2)}


@pytest.mark.parametrize("partition", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize(
    ("labels", "most"), [([], len(VALUE)), (LABELS, 100 * len(VALUE))], ids=["a symbol", "the labels of a series"]
)
def test_labels_beyond_the_limit_are_refused_by_every_reader(
    tmp_path: Path, labels: list[int], most: int, partition: Partition
) -> None:
    series = [series_body(labels, [(1000, 1030, 8)])]
    folder = block(tmp_path, index=index_bytes(symbols=SYMBOLS, series=series, postings=(), label_indices=()))
    with (
        mock.patch.object(symbol_table, "LABEL_BYTES_MAX", most),
        mock.patch.object(index_reader, "LABEL_BYTES_MAX", most),
    ):
        errors = []
        for refuse in (verify_block, lambda folder: merge(folder, partition=partition)):
            with pytest.raises(LimitExceeded) as refused:
                refuse(folder)
            errors.append(refused.value)
    places = {(error.object_name, error.section, error.offset) for error in errors}
    assert len(places) == 1
    assert places.pop()[:2] == (factories.ULID, "index")


def bits(value: int, width: int) -> str:
    """A number of the histograms' code with a payload of so many bits."""
    ones = VAR_WIDTHS.index(width)
    return "1" * ones + ("0" if ones < 8 else "") + f"{value:0{width}b}"


def histogram(count: int, layout: str) -> bytes:
    """A chunk that claims so many samples, and a layout."""
    return count.to_bytes(2, "big") + b"\x00" + packed("00000000" + "0" + layout + "0" * 4096)


SPANS = {
    "more spans than bytes": (1, bits(1 << 24, 25)),
    "more spans than any histogram has": (1, bits(1 << 17, 18) + "0" * (1 << 19)),
    "more buckets than bytes": (1, bits(1, 3) + bits((1 << 55) - 1, 56) + "0" + "0"),
    "more values than are decoded": (4000, bits(1, 3) + bits(1000, 12) + "0" + "0"),
}


@pytest.mark.parametrize("name", SPANS)
@pytest.mark.parametrize("encoding", [2, 3])
def test_histograms_that_promise_too_much_are_refused_before_room_is_made(
    tmp_path: Path, encoding: int, name: str
) -> None:
    data = histogram(*SPANS[name])
    tracemalloc.start()
    with pytest.raises(LimitExceeded):
        decode_histograms(encoding, data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 256 << 10
    chunks = bytes.fromhex("85bd40dd01000000") + record(encoding, data)
    series = [series_body([1, 3], [(1000, 1030, 8)])]
    index = index_bytes(series=series, postings=((b"", b"", (0,)), (b"a", b"x", (0,))), label_indices=())
    files = {"index": index, "chunks/000001": chunks}
    folder = factories.write_block(tmp_path, block_files() | files | {"tombstones": tombstones_bytes((2, 1000, 1010))})
    for refuse in (verify_block, merge):
        with pytest.raises(LimitExceeded) as refused:
            refuse(folder)
        assert (refused.value.object_name, refused.value.section) == (factories.ULID, "chunks/000001")


STEPS = 3000


def chain(root: Path, number: int, shift: int, *, value: int = 5) -> Path:
    """A block of one series whose chunks of 100 samples overlap those of a block with another shift."""
    times = list(range(shift, STEPS, 2))
    cuts = [0, *range(50 + shift, len(times), 100), len(times)]
    chunks = [[(time, value + time) for time in times[first:last]] for first, last in pairwise(cuts)]
    return write(root, number, SmallBlock({((b"a", b"x"),): list(chunks)}))


@pytest.mark.usefixtures("each_series_merge")
@pytest.mark.parametrize("winner", Winner)
def test_a_long_chain_of_overlapping_chunks_is_decoded_a_window_at_a_time(tmp_path: Path, winner: Winner) -> None:
    # The second pair differs in values, which Prometheus' rule decides one sample after the other.
    folders = [chain(tmp_path, number, number % 2, value=number // 2) for number in range(4)]
    small = 512 << 10  # 32 samples at once, or 4096 numbers: five chunks of a hundred samples
    for name, budget in {"small": small, "large": BUDGET_BYTES}.items():
        merge_blocks(folders, tmp_path / name, RESULT, rules=MergeRules(winner=winner), budget_bytes=budget)
    assert file_bytes(tmp_path / "small") == file_bytes(tmp_path / "large")
    assert [len(samples) for samples in content(tmp_path / "small" / RESULT).values()] == [STEPS]


@pytest.mark.parametrize("winner", Winner)
def test_samples_of_one_time_beyond_the_budget_are_refused(winner: Winner) -> None:
    columns = []
    for number in range(2):
        times, chunk = encoded([(time, number) for time in range(number, 100, 2)])
        columns.append([PlacedChunk(StoredChunk(*times, chunk), ulid(number), 8, number)])
    enough = SeriesBudget(1 << 20, 100 * overlaps.SAMPLE_VALUES, 1)
    rules = MergeRules(winner=winner)
    [merged] = merge_chunks(columns, rules, enough)
    assert merged.chunk.sample_count == 100
    for little in (
        enough._replace(values=99 * overlaps.SAMPLE_VALUES - 1),
        enough._replace(record_bytes=len(merged.chunk.data)),
    ):
        with pytest.raises(MergeRefused, match=f"{ulid(0)}: chunks/000001 at offset 8|{ulid(1)}.* 8"):
            merge_chunks(columns, rules, little)


@pytest.mark.usefixtures("each_series_merge")
def test_a_series_that_takes_all_of_the_budget_is_refused_by_name_also_alone(tmp_path: Path) -> None:
    folders = [chain(tmp_path, number, 0, value=number) for number in range(2)]
    needed = 8 * budget_of(folders[0])
    verify_block(folders[0], budget_bytes=needed)
    with pytest.raises(MergeRefused, match="in all blocks"):
        merge_blocks(folders, tmp_path / "out", RESULT, rules=MergeRules(), budget_bytes=needed)
    for refuse in (
        lambda: verify_block(folders[0], budget_bytes=needed - 8),
        lambda: merge_blocks(folders, tmp_path / "out", RESULT, rules=MergeRules(), budget_bytes=needed - 8),
    ):
        with pytest.raises(LimitExceeded, match="the chunks of a series") as refused:
            refuse()
        assert (refused.value.object_name, refused.value.section) == (ulid(0), "chunks/000001")


def budget_of(folder: Path) -> int:
    """Return what is held of the chunks of a block's only series."""
    reader = BlockReader(folder)
    (series,) = reader.index.series()
    [file] = reader.chunks.contents
    return len(file) - HEADER_BYTES + CHUNK_BYTES * len(series.chunks)


@pytest.mark.usefixtures("each_series_merge")
def test_symbols_whose_numbers_fill_the_budget_are_refused_by_name(tmp_path: Path) -> None:
    folder = chain(tmp_path, 0, 0)
    for refuse in (
        lambda: verify_block(folder, budget_bytes=50),
        lambda: merge_blocks([folder], tmp_path / "out", RESULT, rules=MergeRules(), budget_bytes=50),
    ):
        with pytest.raises(LimitExceeded, match="symbols") as refused:
            refuse()
        assert refused.value.object_name == ulid(0)
