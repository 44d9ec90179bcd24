"""Postings: labels that come by series leave by name and value, however few are held; lists of twin and compiled."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import BadReference
from engine.formats.prometheus.index import index_writer, postings_spill
from engine.formats.prometheus.index.index_reader import IndexReader
from engine.formats.prometheus.index.index_writer import IndexWriter
from engine.formats.prometheus.index.postings_spill import PostingsSpill
from engine.formats.prometheus.index.series_batch import series_batch

SYMBOLS = [bytes([97 + number]) for number in range(12)]
ROWS = st.lists(
    st.dictionaries(st.integers(0, 5), st.integers(6, 11), max_size=4).map(
        lambda labels: [ref for pair in sorted(labels.items()) for ref in pair]
    ),
    max_size=30,
).map(lambda rows: [list(row) for row in sorted({tuple(row) for row in rows})])


@pytest.fixture(scope="module", params=["_postings_lists_py", "_postings_lists"])
def lists(request: pytest.FixtureRequest) -> ModuleType:
    """The twin and, where it is built, the compiled writer of lists."""
    try:
        return importlib.import_module(f"engine.formats.prometheus.index.{request.param}")
    except ModuleNotFoundError:
        pytest.skip("the kernels are not built")


def expected_postings(rows: list[list[int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for series, row in enumerate(rows):
        for name, value in zip(row[::2], row[1::2], strict=True):
            found.setdefault(name << 32 | value, []).append(series)
    return dict(sorted(found.items()))


@given(ROWS, st.integers(1, 9), st.integers(1, 5), st.integers(1, 7))
def test_labels_come_back_by_name_and_value(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], held: int, window: int, batch: int
) -> None:
    spill = PostingsSpill(tmp_path_factory.mktemp("spill"), held)
    for first in range(0, len(rows), batch):
        part = rows[first : first + batch]
        spill.add(series_batch([(row, []) for row in part]), np.arange(first, first + len(part), dtype=np.uint32))
    found: dict[int, list[int]] = {}
    with mock.patch.multiple(postings_spill, WINDOW_PIECES=0, WINDOW_PIECES_MIN=window):
        for _ in range(2):
            found = {}
            windows = [zip(*(column.tolist() for column in pieces), strict=True) for pieces in spill.pieces()]
            for pair, count, place in (piece for pieces in windows for piece in pieces):
                ids = np.frombuffer(spill.ids(place, count), ">u4").tolist()
                assert len(ids) == count
                found.setdefault(pair, []).extend(ids)
    assert list(found.items()) == list(expected_postings(rows).items())
    assert b"".join(spill.all_ids()) == np.arange(len(rows), dtype=">u4").tobytes()
    spill.close()


@given(ROWS, st.integers(1, 9), st.integers(1, 6))
def test_an_index_is_the_same_whether_its_lists_are_made_together_or_in_parts(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], held: int, at_once: int
) -> None:
    root = tmp_path_factory.mktemp("index")
    for name, labels_held, ids_at_once in (("whole", 1 << 20, 1 << 20), ("parts", held, at_once)):
        limits = {"IDS_AT_ONCE": ids_at_once, "TABLE_BYTES_AT_ONCE": ids_at_once}
        with mock.patch.multiple(index_writer, **limits):
            writer = IndexWriter(root / name, SYMBOLS, labels_held=labels_held)
            writer.add(series_batch([(row, []) for row in rows]))
            writer.finish()
    assert (root / "whole").read_bytes() == (root / "parts").read_bytes()
    index = IndexReader(root / "parts")
    assert sum(len(postings.ids) for postings in index.postings_lists()) == len(rows) + sum(map(len, rows)) // 2


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 255, 256, 1 << 16, 1 << 24, (1 << 32) - 1]), st.integers(0, 3)), max_size=40
    ),
    st.integers(0, 40),
)
def test_ids_are_grouped_by_pair_and_stay_in_order(lists: ModuleType, labels: list[tuple[int, int]], gap: int) -> None:
    pairs = [name << 32 | value << 8 * (value & 3) for name, value in labels]
    ids = [(gap + 1) * place * 7_919 % (1 << 32) for place in range(len(pairs))]
    found, counts, grouped = lists.grouped_ids(np.array(pairs, np.uint64), np.array(ids, np.uint32))
    expected: dict[int, list[int]] = {}
    for pair, series in zip(pairs, ids, strict=True):
        expected.setdefault(pair, []).append(series)
    assert found.tolist() == sorted(expected)
    assert counts.tolist() == [len(expected[pair]) for pair in sorted(expected)]
    assert np.frombuffer(grouped, ">u4").tolist() == [series for pair in sorted(expected) for series in expected[pair]]
    with pytest.raises(ValueError, match="as many ids"):
        lists.grouped_ids(np.array([*pairs, 1], np.uint64), np.array(ids, np.uint32))


def test_lists_have_their_place_padding_and_entry(lists: ModuleType, tmp_path: Path) -> None:
    IndexWriter(tmp_path / "index", SYMBOLS).finish()
    symbols = IndexReader(tmp_path / "index").symbols
    pairs = np.array([6, 6, 2 << 32 | 7], np.uint64)
    ids = bytes(range(16))
    pieces = (np.array([1, 2, 1], np.uint32), np.array([12, 0, 8]), ids, symbols)
    out, table, count, done = lists.format_lists(5, pairs, *pieces, 100)
    assert (count, done) == (2, 3)
    assert out[:3] == bytes(3)
    assert out[3:11] == (16).to_bytes(4, "big") + (3).to_bytes(4, "big")
    assert out[11:23] == ids[12:] + ids[:8]
    assert out[27:35] == (8).to_bytes(4, "big") + (1).to_bytes(4, "big")
    assert out[35:39] == ids[8:12]
    assert table == b"\x02\x01a\x01g\x08" + b"\x02\x01c\x01h\x20"
    nothing = (pairs[:0], np.empty(0, np.uint32), np.empty(0, np.int64), b"", symbols)
    assert lists.format_lists(5, *nothing, 100) == (b"", b"", 0, 0)
    # One list is always made; the next only while the table is short.
    assert (
        lists.format_lists(5, pairs, *pieces, 0)
        == lists.format_lists(5, pairs, *pieces, 6)
        == (
            out[:27],
            b"\x02\x01a\x01g\x08",
            1,
            2,
        )
    )
    assert lists.format_lists(5, pairs, *pieces, 7) == (out, table, 2, 3)


def test_a_piece_or_symbol_that_does_not_exist_is_refused(lists: ModuleType, tmp_path: Path) -> None:
    IndexWriter(tmp_path / "index", SYMBOLS).finish()
    symbols = IndexReader(tmp_path / "index").symbols
    one, pair = np.ones(1, np.uint32), np.array([6], np.uint64)
    for place in (-4, 1, 100):
        with pytest.raises(ValueError, match="piece"):
            lists.format_lists(0, pair, one, np.array([place]), bytes(4), symbols, 9)
    with pytest.raises(BadReference):
        lists.format_lists(0, np.array([99], np.uint64), one, np.zeros(1, np.int64), bytes(4), symbols, 9)
