"""Block ids: ULIDs there and back, and nothing that only looks like one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import ulids
from engine.core.errors import BadBlockName

KNOWN = "01JKT3DJRETWN25NKEFZNEP1V0"


def test_a_known_id_holds_its_time() -> None:
    assert ulids.time_ms(KNOWN) == 1739264019214


@given(st.integers(0, ulids.TIME_MS_MAX), st.binary(min_size=10, max_size=10))
def test_an_id_gives_back_what_it_was_made_of(time_ms: int, entropy: bytes) -> None:
    assert ulids.parse(ulids.make(time_ms, entropy)) == (time_ms, entropy)


@given(st.integers(0, ulids.TIME_MS_MAX - 1), st.binary(min_size=10, max_size=10))
def test_later_ids_sort_after_earlier_ones(time_ms: int, entropy: bytes) -> None:
    assert ulids.make(time_ms, b"\xff" * 10) < ulids.make(time_ms + 1, entropy)


@given(st.integers(0, ulids.TIME_MS_MAX), st.binary(min_size=10, max_size=10))
def test_the_first_id_of_a_time_sorts_before_the_others_of_it(time_ms: int, entropy: bytes) -> None:
    assert ulids.first(time_ms) <= ulids.make(time_ms, entropy)
    assert ulids.time_ms(ulids.first(time_ms)) == time_ms


def test_the_first_id_of_a_time_that_no_id_can_have_is_that_of_the_nearest() -> None:
    assert [ulids.time_ms(ulids.first(time_ms)) for time_ms in (-5, 1 << 50)] == [0, ulids.TIME_MS_MAX]


def test_two_new_ids_of_one_millisecond_differ() -> None:
    assert ulids.new(1) != ulids.new(1)


@pytest.mark.parametrize("text", ["", KNOWN[:-1], KNOWN + "0", KNOWN.lower(), "8" + KNOWN[1:], KNOWN[:-1] + "U"])
def test_what_is_not_an_id_is_refused(text: str) -> None:
    with pytest.raises(BadBlockName, match="ULID"):
        ulids.parse(text)


@pytest.mark.parametrize(("time_ms", "entropy"), [(-1, bytes(10)), (1 << 48, bytes(10)), (0, bytes(9))])
def test_an_id_is_not_made_of_what_it_cannot_hold(time_ms: int, entropy: bytes) -> None:
    with pytest.raises(BadBlockName):
        ulids.make(time_ms, entropy)
