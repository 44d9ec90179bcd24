"""What we write: real blocks byte for byte, random ones equal when read back, and nothing half done left behind."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import BadObject, BadReference, LimitExceeded, UnknownFormat
from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.block_writer import BlockWriter
from engine.formats.prometheus.chunks.histograms import encode_histograms
from engine.formats.prometheus.chunks.xor import encode_xor
from engine.formats.prometheus.errors import OutOfOrder
from engine.formats.prometheus.index.index_reader import IndexReader
from engine.formats.prometheus.index.index_writer import IndexWriter
from engine.formats.prometheus.index.series_batch import series_batch
from engine.formats.prometheus.meta import BlockMeta, BlockStats, Compaction
from engine.formats.prometheus.model import ENCODING_XOR, Chunk, ChunkMeta, Labels
from engine.lanes.tsdb.merge.verification import verify_block
from tests.engine.lanes.tsdb.conftest import RealBlocks
from tests.engine.lanes.tsdb.factories import MAX_TIME, MIN_TIME, ULID, block_files, write_block

META = BlockMeta(ULID, MIN_TIME, MAX_TIME, BlockStats(), Compaction(1, (ULID,)))
Rows = list[tuple[Labels, list[tuple[int, list[int]]]]]


def copied(source: BlockReader, parent: Path, **options: object) -> Path:
    """Write a block anew out of what is read of it, every float and histogram decoded and encoded again."""
    with BlockWriter(parent, source.name, source.index.symbols, **options) as writer:  # type: ignore[arg-type]
        for batch in source.index.batches():
            refs = []
            for first, last in zip(batch.chunk_starts[:-1].tolist(), batch.chunk_starts[1:].tolist(), strict=True):
                columns = (batch.min_times, batch.max_times, batch.chunk_refs)
                metas = map(ChunkMeta, *(column[first:last].tolist() for column in columns))
                refs += writer.write_chunks([encoded_again(source, meta) for meta in metas])
            ids = writer.add_series(batch._replace(chunk_refs=np.array(refs, np.uint64)))
            assert ids.tolist() == batch.ids.tolist()
        entries = [
            (series_id, *interval)
            for series_id in source.tombstones.series_ids()
            for interval in source.tombstones.intervals(series_id)
        ]
        writer.finish(source.meta, entries)
    return parent / source.name


def encoded_again(source: BlockReader, meta: ChunkMeta) -> Chunk:
    chunk = source.chunk(meta)
    if chunk.encoding == ENCODING_XOR:
        return Chunk(chunk.encoding, encode_xor(*source.floats(meta, chunk)))
    return Chunk(chunk.encoding, encode_histograms(source.histograms(meta, chunk)))


def file_bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.foreign_data
def test_a_real_block_decoded_and_written_again_has_the_same_bytes(real_blocks: RealBlocks, tmp_path: Path) -> None:
    for folder in real_blocks.folders()[:2]:
        written, original = file_bytes(copied(BlockReader(folder), tmp_path)), file_bytes(folder)
        assert written.keys() == original.keys()
        assert written["tombstones"][:5] == original["tombstones"][:5]
        for name in sorted(original.keys() - {"tombstones"}):
            assert written[name] == original[name], name


@pytest.mark.foreign_data
@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool: apt-get install prometheus")
@pytest.mark.parametrize("label_indices", [True, False])
def test_promtool_reads_what_we_write(
    all_real_blocks: dict[str, RealBlocks], tmp_path: Path, label_indices: bool
) -> None:
    (folder, *_) = all_real_blocks["stale-and-histograms"].folders()
    original = tmp_path / "original"
    shutil.copytree(folder, original / folder.name)
    written = copied(BlockReader(folder), tmp_path / "written", chunk_file_bytes=20_000, label_indices=label_indices)
    assert len(list(written.glob("chunks/*"))) > 1

    def answer(command: str, root: Path, *more: str) -> str:
        (root / "wal").mkdir(exist_ok=True)  # promtool reads a whole data folder
        done = subprocess.run(
            ["promtool", "tsdb", command, str(root), *more], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert folder.name in answer("list", written.parent)
    assert answer("dump", written.parent) == answer("dump", original)
    # Its lists of the most frequent labels are cut among equals, at random; the counts are above the first empty line.
    found, expected = (answer("analyze", root, folder.name).split("\n\n")[0] for root in (written.parent, original))
    assert "\nSeries: 69\n" in found
    assert found == expected


LABEL_TEXTS = st.binary(min_size=1, max_size=3)
LABELS = st.dictionaries(LABEL_TEXTS, st.binary(max_size=3), max_size=4).map(
    lambda labels: tuple(sorted(labels.items()))
)
VALUE_BITS = st.one_of(
    st.integers(0, (1 << 64) - 1), st.sampled_from([0, 1 << 63, 0x7FF0000000000002, 0x3FF0000000000000])
)


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    """Series with chunks that follow one another, each a list of steps of time and value bits."""
    found = []
    for labels in sorted(draw(st.sets(LABELS, max_size=6))):
        time, chunks = MIN_TIME - 1, []
        for _ in range(draw(st.integers(1, 3))):
            samples = draw(st.lists(st.tuples(st.integers(1, 40), VALUE_BITS), min_size=1, max_size=5))
            chunk = []
            for step, bits in samples:
                time += step
                chunk.append((time, bits))
            chunks.append(chunk)
        found.append((labels, chunks))
    return found


def symbols_of(found: Rows) -> list[bytes]:
    return sorted({b"", *(text for labels, _ in found for pair in labels for text in pair)})


def written(parent: Path, found: Rows, **options: object) -> Path:
    symbols = symbols_of(found)
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    with BlockWriter(parent, ULID, symbols, **options) as writer:  # type: ignore[arg-type]
        for labels, chunks in found:
            encoded = [
                Chunk(
                    ENCODING_XOR,
                    encode_xor(np.array([t for t, _ in chunk]), np.array([v for _, v in chunk], np.uint64)),
                )
                for chunk in chunks
            ]
            refs = writer.write_chunks(encoded)
            metas = [ChunkMeta(chunk[0][0], chunk[-1][0], ref) for chunk, ref in zip(chunks, refs, strict=True)]
            writer.add_series(series_batch([([numbers[text] for pair in labels for text in pair], metas)]))
        writer.finish(META)
    return parent / ULID


def read_back(folder: Path) -> Iterator[tuple[Labels, list[list[tuple[int, int]]]]]:
    block = BlockReader(folder)
    for series in block.index.series():
        chunks = [block.floats(meta, block.chunk(meta)) for meta in series.chunks]
        yield series.labels, [list(zip(times.tolist(), bits.tolist(), strict=True)) for times, bits in chunks]


@pytest.mark.slow
@given(rows(), st.booleans(), st.integers(0, 200))
def test_any_block_is_sound_and_equal_when_read_back(
    tmp_path_factory: pytest.TempPathFactory, found: Rows, label_indices: bool, file_size: int
) -> None:
    folder = written(tmp_path_factory.mktemp("any"), found, label_indices=label_indices, chunk_file_bytes=file_size)
    assert list(read_back(folder)) == found
    counts = verify_block(folder)
    assert counts.samples == sum(len(chunk) for _, chunks in found for chunk in chunks)
    assert counts.postings_lists == 1 + len({pair for labels, _ in found for pair in labels})


@pytest.mark.slow
@given(rows(), st.integers(1, 8))
def test_the_bytes_do_not_depend_on_how_many_labels_a_pass_holds(
    tmp_path_factory: pytest.TempPathFactory, found: Rows, held: int
) -> None:
    folder = written(tmp_path_factory.mktemp("held"), found)
    again = folder / "again"
    source = IndexReader(folder / "index")
    index = IndexWriter(again, source.symbols, labels_held=held)
    for batch in source.batches():
        index.add(batch)
    index.finish()
    assert again.read_bytes() == (folder / "index").read_bytes()


def test_an_index_made_by_hand_is_the_one_we_write(tmp_path: Path) -> None:
    folder = write_block(tmp_path, block_files())
    source = IndexReader(folder / "index")
    index = IndexWriter(tmp_path / "index", source.symbols)
    for batch in source.batches(1):
        index.add(batch)
    index.finish()
    assert (tmp_path / "index").read_bytes() == block_files()["index"]


# Shares of a record count 10 bytes beside the data; a file has 8 bytes of header.
@pytest.mark.parametrize(
    ("limit", "batches", "files"),
    [
        (48, [[10, 10], [10]], [2, 1]),
        (47, [[10, 10], [10]], [1, 2]),
        (44, [[10], [10]], [2]),
        (43, [[10], [10]], [1, 1]),
        (8, [[10, 10]], [1, 1]),
        (8, [[500]], [1]),
        (60, [[10], [10, 10, 10]], [2, 2]),
    ],
)
def test_where_chunk_files_are_cut(tmp_path: Path, limit: int, batches: list[list[int]], files: list[int]) -> None:
    with BlockWriter(tmp_path, ULID, [], chunk_file_bytes=limit) as writer:
        refs = [writer.write_chunks([Chunk(4, bytes(size)) for size in batch]) for batch in batches]
        places = [ref >> 32 for batch in refs for ref in batch]
        assert [places.count(number) for number in range(max(places) + 1)] == files
    assert list(tmp_path.iterdir()) == []


ROWS_OUT_OF_ORDER = [
    ([([1, 2], []), ([0, 2], [])], OutOfOrder),
    ([([0, 2], []), ([0, 2], [])], OutOfOrder),
    ([([1, 2, 0, 2], [])], OutOfOrder),
    ([([0, 3], [])], BadReference),
    ([([0, 2], [ChunkMeta(5, 4, 8)])], OutOfOrder),
    ([([0, 2], [ChunkMeta(5, 6, 8), ChunkMeta(6, 7, 40)])], OutOfOrder),
    ([([0, 2], [ChunkMeta(5, 6, 40), ChunkMeta(7, 7, 8)])], OutOfOrder),
    ([([0, 2], [ChunkMeta(5, 6, 40)]), ([1, 2], [ChunkMeta(7, 7, 40)])], OutOfOrder),
]


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(("given_rows", "kind"), ROWS_OUT_OF_ORDER)
def test_series_written_out_of_order_are_refused(
    tmp_path: Path, given_rows: list[tuple[list[int], list[ChunkMeta]]], kind: type[BadObject], one_by_one: bool
) -> None:
    writer = IndexWriter(tmp_path / "index", [b"a", b"b", b"x"])
    *before, last = [[row] for row in given_rows] if one_by_one else [given_rows]
    for batch in before:
        writer.add(series_batch(batch))
    with pytest.raises(kind):
        writer.add(series_batch(last))
    writer.discard()


def test_order_is_demanded_of_symbols(tmp_path: Path) -> None:
    with pytest.raises(OutOfOrder, match="symbols"):
        IndexWriter(tmp_path / "index", [b"b", b"a"])


def test_what_no_block_can_hold_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(LimitExceeded):
        encode_xor(np.empty(0, np.int64), np.empty(0, np.uint64))
    with pytest.raises(LimitExceeded):
        encode_xor(np.arange(1 << 16), np.zeros(1 << 16, np.uint64))
    with BlockWriter(tmp_path, ULID, []) as writer, pytest.raises(UnknownFormat):
        writer.write_chunks([Chunk(7, b"\x00\x01")])


def test_a_block_that_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OutOfOrder), BlockWriter(tmp_path, ULID, [b"b", b"a"]):
        pass
    with BlockWriter(tmp_path, ULID, [b"a"]) as writer:
        writer.write_chunks([Chunk(1, b"\x00\x01")])
    assert list(tmp_path.iterdir()) == []


def test_statistics_are_counted_and_the_rest_of_the_meta_is_kept(tmp_path: Path) -> None:
    folder = written(tmp_path, [(((b"a", b"x"),), [[(MIN_TIME, 7)], [(MIN_TIME + 5, 8), (MIN_TIME + 6, 9)]])])
    meta = BlockReader(folder).meta
    assert meta == dataclasses.replace(META, stats=BlockStats(num_samples=3, num_series=1, num_chunks=2))
