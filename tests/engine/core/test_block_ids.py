"""Result ids: known answers of other implementations, and what a fencing token changes."""

from __future__ import annotations

import pytest

from engine.core import ulids
from engine.core.block_ids import TABLE_FIRST_WORD, result_ids, start_table
from engine.core.errors import MergeRefused

SEGMENTS = (
    "01J2VJQPYDC160REPAD2VN88XN",
    "01J2VJQRTMSCY4VDYBP5N4N5JK",
    "01J2VJQV544TF571FDSK2H692P",
    "01J2VJQYQVZTPZMMJKE7F2XC47",
    "01J2VJR0R3NQS23SDADNA6XHCM",
)


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([(block_id, 0) for block_id in SEGMENTS], "01J2VJQPYDBY3Y1NYSY0PGJ8AX"),
        ([("01JKT2XEGT6F65H83PN9TVJVD8", 3), ("01JKT426999WRKSJZ0A43F75TA", 2)], "01JKT2XEGTDZNFFF2SW5JAYX44"),
        ([("01JKT3DJREX3NVDAYNZMBA1FA2", 3)], "01JKT3DJRE1GB7PK0F78AM2FAM"),
        ([("01JKT426999WRKSJZ0A43F75TA", 2)] * 2, "01JKT42699SC1ZE82BNSMS76VV"),
    ],
)
def test_ids_without_a_token_are_those_of_the_format(sources: list[tuple[str, int]], expected: str) -> None:
    assert result_ids(sources, 1, None) == [expected]


def test_the_start_table_is_the_published_one() -> None:
    table = start_table()
    assert len(set(table)) == 607
    assert table[0] - (1 << 64) == TABLE_FIRST_WORD


def test_more_ids_continue_the_same_stream() -> None:
    sources = [(SEGMENTS[0], 0)]
    four = result_ids(sources, 4, None)
    assert len(set(four)) == 4
    assert result_ids(sources, 2, None) == four[:2]
    assert {ulids.time_ms(block_id) for block_id in four} == {ulids.time_ms(SEGMENTS[0])}


def test_a_long_stream_follows_the_generators_recurrence() -> None:
    ids = result_ids([(SEGMENTS[0], 0)], 1000, 7)
    stream = b"".join(ulids.parse(block_id)[1] for block_id in ids)
    draws = [int.from_bytes(stream[place : place + 7], "little") for place in range(0, len(stream) - 6, 7)]
    assert len(draws) > 2 * 607
    for step in range(607, len(draws)):
        assert draws[step] == (draws[step - 607] + draws[step - 273]) % (1 << 56)


def test_every_token_names_other_results() -> None:
    sources = [(SEGMENTS[0], 0)]
    ids = [result_ids(sources, 1, fence)[0] for fence in (None, 0, 1, 2, 1 << 40)]
    assert len(set(ids)) == len(ids)


def test_order_and_level_of_sources_matter() -> None:
    first, second = (SEGMENTS[0], 0), (SEGMENTS[1], 0)
    assert result_ids([first, second], 1, 1) != result_ids([second, first], 1, 1)
    assert result_ids([first], 1, 1) != result_ids([(SEGMENTS[0], 1)], 1, 1)


def test_no_sources_have_no_ids() -> None:
    with pytest.raises(MergeRefused):
        result_ids([], 1, None)
