"""The book of all ids says what a dictionary says, whatever is packed."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulation.memory import id_book
from engine.simulation.memory.id_book import IdBook
from engine.simulation.memory.ids import segment_id

PART_MS = 1 << 20
"""Ids of one prefix differ by less."""

ids = st.builds(
    lambda part, number: segment_id(1_800_000_000_000 + part * PART_MS, number), st.integers(0, 9), st.integers(0, 5)
)


@given(st.lists(st.tuples(ids, st.integers(-(2**63), 2**63 - 1)), max_size=60), st.lists(ids))
def test_the_book_is_a_dictionary(entries: list[tuple[str, int]], others: list[str]) -> None:
    book, plain = IdBook(), {}
    for ulid, value in entries:
        book[ulid] = plain[ulid] = value
        assert all(book[each] == plain[each] for each in plain)
    assert dict(book) == plain
    assert len(book) == len(plain)
    assert [ulid in book for ulid in others] == [ulid in plain for ulid in others]


def test_an_unknown_id_of_a_packed_part_is_a_key_error_and_what_is_no_id_is_refused() -> None:
    book = IdBook()
    for part in range(8):
        book[segment_id(part * PART_MS, 1)] = part
    with pytest.raises(KeyError):
        book[segment_id(0, 2)]
    with pytest.raises(ValueError, match="not a ULID"):
        book["short"] = 1


def test_packed_ids_take_little_more_than_their_letters() -> None:
    """Counted is what the book's own lines allocated: threads of other tests may allocate meanwhile."""
    own = tracemalloc.Filter(True, id_book.__file__)
    tracemalloc.start()
    try:
        book = IdBook()
        for number in range(20_000):
            book[segment_id(0, number)] = number
        for part in range(1, 8):
            book[segment_id(part * PART_MS, 1)] = 1
        held = sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([own]).traces)
    finally:
        tracemalloc.stop()
    assert 34 <= held / 20_000 < 40
