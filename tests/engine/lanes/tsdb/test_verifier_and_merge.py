"""What a merge refuses of a block, the verifier of that block alone finds as well: else its group would be stuck.

Bytes of a block are changed and sealed again, so that no checksum gives them away. The other way round there is a
difference: nothing of the postings and label indices is read by a merge, and chunks that it copies are not decoded.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.core.errors import BadObject
from engine.formats.prometheus.chunks.histogram_model import CounterReset, HistogramChunk, HistogramSample
from engine.formats.prometheus.chunks.histograms import encode_histograms
from engine.formats.prometheus.errors import OnlyCopied
from engine.lanes.tsdb.merge.merge import MergeRules, Partition, Winner, merge_blocks
from engine.lanes.tsdb.merge.verification import verify_block
from tests.engine.lanes.tsdb import factories
from tests.engine.lanes.tsdb.factories import (
    index_bytes,
    meta_document,
    record,
    sealed,
    series_body,
    svarint,
    uvarint,
    xor_chunk,
)
from tests.engine.lanes.tsdb.small_blocks import BUDGET_BYTES, LAYOUT, implemented_by, ulid

IMPLEMENTATIONS = ("_series_merge_py", "_series_merge")
SYMBOLS = (b"", b"a", b"b", b"v", b"w", b"x", b"y")
PLACES = (8, 40, 80, 160, 240, 300)
WHERE = st.sampled_from(["chunk", "series", "tombstones", "encoding"])
HEADER = bytes.fromhex("85bd40dd01000000")
EXAMPLES = int(os.environ.get("LITHIFY_FUZZ_EXAMPLES", "50"))
"""Some seconds; a thousand, told so by this variable, take some minutes."""


def histogram(start: int, *, is_float: bool) -> bytes:
    samples = tuple(HistogramSample(start + 10 * place, 3, 0, 7, (1, 2)) for place in range(3))
    return encode_histograms(HistogramChunk(is_float, CounterReset.UNKNOWN, LAYOUT, samples))


def chunks(shift: int) -> list[tuple[int, bytes]]:
    """Two float chunks, one of each kind of histograms, and two that are not decoded here."""
    return [
        (1, xor_chunk(1000 + shift, 4)),
        (1, xor_chunk(1040 + shift, 1)),
        (2, histogram(1000 + shift, is_float=False)),
        (3, histogram(1000 + shift, is_float=True)),
        (4, xor_chunk(1000, 4)),
        (5, xor_chunk(1000, 4)),
    ]


def series(shift: int) -> list[bytes]:
    """The labels of each series, as symbols, and its chunks."""
    opaque = [([1, 6], [(1000, 1030, 240)]), ([2, 3], [(1000, 1030, 300)])] if not shift else []
    rows = [
        ([1, 3], [(1000 + shift, 1030 + shift, 8), (1040 + shift, 1040 + shift, 40)]),
        ([1, 4], [(1000 + shift, 1020 + shift, 80)]),
        ([1, 5], [(1000 + shift, 1020 + shift, 160)]),
        *opaque,
    ]
    return [series_body(*row) for row in rows]


VALUES = (b"v", b"w", b"x", b"y")
LISTS = ((b"", b"", range(5)), *((b"a", value, (place,)) for place, value in enumerate(VALUES)), (b"b", b"v", (4,)))


def chunk_file(records: list[tuple[int, bytes]]) -> bytes:
    out = bytearray(HEADER)
    for place, (encoding, data) in zip(PLACES, records, strict=False):
        out += bytes(place - len(out)) + record(encoding, data)
    return bytes(out)


def meta(bodies: int, records: int, samples: int, tombstones: int) -> bytes:
    stats = {"numSamples": samples, "numSeries": bodies, "numChunks": records, "numTombstones": tombstones}
    return json.dumps(meta_document(stats=stats)).encode()


def series_ids() -> list[int]:
    """Where the series lie in the index, in steps of 16 bytes."""
    position = 5 + 8 + sum(1 + len(symbol) for symbol in SYMBOLS) + 4
    ids = []
    for body in series(0):
        position += -position % 16
        ids.append(position // 16)
        position += 1 + len(body) + 4
    return ids


FLOATS, HISTOGRAMS = series_ids()[:2]
TOMBSTONES = uvarint(FLOATS) + svarint(1000) + svarint(1010) + uvarint(HISTOGRAMS) + svarint(1015) + svarint(1040)


def write(root: Path, bodies: list[bytes], records: list[tuple[int, bytes]], tombstones: bytes) -> Path:
    lists = LISTS if len(bodies) == 5 else ((b"", b"", range(len(bodies))),)
    files = {
        "meta.json": meta(len(bodies), len(records), sum(data[1] for _, data in records), 2),
        "index": index_bytes(symbols=SYMBOLS, series=bodies, postings=lists, label_indices=()),
        "chunks/000001": chunk_file(records),
        "tombstones": factories.TOMBSTONES_MAGIC + b"\x01" + sealed(tombstones),
    }
    return factories.write_block(root, files)


def changed(data: bytes, at: int, value: int) -> bytes:
    return data[: at % len(data)] + bytes([value]) + data[at % len(data) + 1 :]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound block whose samples lie between those of the one that is damaged, but for what is only ever copied."""
    root = tmp_path_factory.mktemp("other")
    bodies, records = series(5), chunks(5)[:4]
    folder = write(root, bodies, records, b"").rename(root / ulid(1))
    (folder / "tombstones").unlink()
    document = meta_document(ulid=ulid(1), stats={"numSamples": 11, "numSeries": 3, "numChunks": 4})
    (folder / "meta.json").write_text(json.dumps(document))
    return folder


def verified(folder: Path, *, is_merged_by_time: bool = False) -> BadObject | None:
    try:
        verify_block(folder, is_merged_by_time=is_merged_by_time)
    except BadObject as error:
        return error
    return None


def refusals(folder: Path, other: Path, root: Path) -> Iterator[BadObject]:
    """Merge with each implementation, rule and cut, and yield what is refused."""
    for number, name in enumerate(IMPLEMENTATIONS):
        for winner, parts in ((Winner.OURS, 1), (Winner.PROMETHEUS, 1), (Winner.OURS, 2)):
            for part in range(parts):
                shutil.rmtree(root / "out", ignore_errors=True)
                with implemented_by(name):
                    try:
                        merge_blocks(
                            [folder, other],
                            root / "out",
                            ulid(7 + number),
                            rules=MergeRules(winner=winner),
                            partition=Partition(part, parts),
                            budget_bytes=BUDGET_BYTES,
                        )
                    except BadObject as error:
                        yield error


@pytest.mark.slow
@pytest.mark.usefixtures("_no_waiting_for_the_disk")
@settings(max_examples=EXAMPLES)
@given(WHERE, st.integers(0, 5), st.integers(0, 400), st.integers(0, 255))
@example("chunk", 0, 157, 16)  # other times than the index says, in a chunk of which samples are deleted
def test_what_a_merge_refuses_the_verifier_finds_in_the_block_alone(
    tmp_path_factory: pytest.TempPathFactory, other: Path, where: str, which: int, at: int, byte: int
) -> None:
    pytest.importorskip("engine.lanes.tsdb.merge._series_merge")
    root = tmp_path_factory.mktemp("damaged")
    bodies, records, tombstones = series(0), chunks(0), TOMBSTONES
    if where == "chunk":
        encoding, data = records[which]
        records[which] = (encoding, changed(data, at, byte))
    elif where == "encoding":
        records[which] = (byte % 8, records[which][1])
    elif where == "series":
        bodies[which % 5] = changed(bodies[which % 5], at, byte)
    else:
        tombstones = changed(tombstones, at, byte)
    folder = write(root, bodies, records, tombstones)
    found = list(refusals(folder, other, root))
    assert {error.object_name for error in found} <= {factories.ULID}
    if found and verified(folder) is None:
        assert all(isinstance(error, OnlyCopied) for error in found)
        assert isinstance(verified(folder, is_merged_by_time=True), OnlyCopied)


def test_the_block_that_is_damaged_is_sound_before(tmp_path: Path, other: Path) -> None:
    folder = write(tmp_path, series(0), chunks(0), TOMBSTONES)
    assert verified(folder) is None
    assert list(refusals(folder, other, tmp_path)) == []
    assert isinstance(verified(folder, is_merged_by_time=True), OnlyCopied)
