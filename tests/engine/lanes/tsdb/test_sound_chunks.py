"""The check of many float chunks: both implementations stop at the same chunk, for the same bytes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest

from engine.core.binary import encode_uvarint
from engine.core.checksums import crc32c
from engine.formats.prometheus.chunks.chunk_files import HEADER_BYTES, OFFSET_BITS
from engine.formats.prometheus.chunks.xor import encode_xor
from engine.formats.prometheus.index.series_batch import SeriesBatch, series_batch
from engine.formats.prometheus.model import ChunkMeta

Check = Callable[[Sequence[memoryview], SeriesBatch, int], tuple[int, int]]
COUNT = 5
SAMPLES = 7


@pytest.fixture(params=["_sound_chunks_py", "_sound_chunks"])
def check(request: pytest.FixtureRequest) -> Check:
    """Each implementation."""
    try:
        module = importlib.import_module(f"engine.lanes.tsdb.merge.{request.param}")
    except ModuleNotFoundError:
        pytest.skip("the kernels are not built")
    found: Check = module.sound_float_chunks
    return found


def data_of(times: Sequence[int]) -> bytes:
    return encode_xor(np.array(times, np.int64), np.arange(len(times), dtype=np.uint64))


def record(data: bytes, encoding: int = 1) -> bytes:
    sealed = bytes([encoding]) + data
    return encode_uvarint(len(data)) + sealed + crc32c(sealed).to_bytes(4, "big")


TIMES = [[1000 * number + 10 * place for place in range(SAMPLES)] for number in range(COUNT)]
RECORDS = [record(data_of(times)) for times in TIMES]
METAS = [(times[0], times[-1]) for times in TIMES]


def block(records: Sequence[bytes], metas: Sequence[tuple[int, int]]) -> tuple[list[memoryview], SeriesBatch]:
    """Return two chunk files, the second with the last record only, and a batch with all chunks in one series."""
    files = [bytearray(HEADER_BYTES), bytearray(HEADER_BYTES)]
    chunks = []
    for position, (each, times) in enumerate(zip(records, metas, strict=True)):
        number = int(position == len(records) - 1)
        chunks.append(ChunkMeta(*times, number << OFFSET_BITS | len(files[number])))
        files[number] += each
    return [memoryview(bytes(file)) for file in files], series_batch([([0, 1], chunks)])


def test_all_sound_chunks_are_counted_from_any_of_them_on(check: Check) -> None:
    files, batch = block(RECORDS, METAS)
    for first in range(COUNT + 1):
        assert check(files, batch, first) == (COUNT, SAMPLES * (COUNT - first))
    empty = series_batch([([0, 1], [])])
    assert check(files, empty, 0) == (0, 0)


@pytest.mark.parametrize("place", [0, 2, COUNT - 1])
@pytest.mark.parametrize(
    "bad",
    [
        record(data_of(TIMES[0]), encoding=2),
        record(data_of(TIMES[0]), encoding=9),
        record(b""),
        record(data_of(TIMES[0])[:-1]),
        record(data_of(TIMES[0]) + bytes(2)),
        record(data_of([0, 20, 10, 30, 40, 50, 60])),
        record(data_of([0, 10, 10, 30, 40, 50, 60])),
        record(data_of([1, 10, 20, 30, 40, 50, 60])),
        record(data_of([0, 10, 20, 30, 40, 50, 61])),
        record(data_of(TIMES[0]))[:-1] + b"\x00",
        record(data_of(TIMES[0]))[:-4],
        b"\xff" * 9 + b"\x7f",
        encode_uvarint(1 << 62) + bytes(20),
    ],
    ids=range(13),
)
def test_it_stops_at_the_chunk_that_is_not_sound(check: Check, bad: bytes, place: int) -> None:
    records, metas = list(RECORDS), list(METAS)
    records[place], metas[place] = bad, METAS[0]
    files, batch = block(records, metas)
    assert check(files, batch, 0) == (place, SAMPLES * place)


@pytest.mark.parametrize("ref", [0, HEADER_BYTES - 1, (1 << OFFSET_BITS) - 1, 2 << OFFSET_BITS | 8, (1 << 64) - 1])
def test_it_stops_at_a_reference_to_nowhere(check: Check, ref: int) -> None:
    files, batch = block(RECORDS, METAS)
    batch.chunk_refs[3] = ref
    assert check(files, batch, 1) == (3, 2 * SAMPLES)


def test_both_stop_at_the_same_chunk_of_random_bytes() -> None:
    pure = importlib.import_module("engine.lanes.tsdb.merge._sound_chunks_py")
    compiled = pytest.importorskip("engine.lanes.tsdb.merge._sound_chunks")
    random = Random(5)
    for _ in range(500):
        files, batch = block(RECORDS, METAS)
        data = bytearray(files[0])
        data[random.randrange(HEADER_BYTES, len(data))] = random.randrange(256)
        damaged = [memoryview(bytes(data)), files[1]]
        answer = pure.sound_float_chunks(damaged, batch, 0)
        assert compiled.sound_float_chunks(damaged, batch, 0) == answer
        assert (answer == (COUNT, COUNT * SAMPLES)) == (damaged[0] == files[0])
