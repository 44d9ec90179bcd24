"""What the demonstration counts: objects and bytes by level, sizes for people, and where two answers differ."""

from __future__ import annotations

import pytest

from webadmin.embedded.demo.figures import (
    LevelTotal,
    LiveBlock,
    differences,
    name_text,
    seconds_text,
    size_text,
    total,
    totals_by_level,
    value_text,
)


def block(level: int, size: int) -> LiveBlock:
    return LiveBlock(key=f"{level}/{size}", level=level, size=size, metadata=b"", visible={})


def test_objects_and_bytes_are_counted_by_level_lowest_first() -> None:
    levels = totals_by_level([block(3, 10), block(0, 1), block(0, 2)])
    assert list(levels.items()) == [(0, LevelTotal(2, 3)), (3, LevelTotal(1, 10))]
    assert total(levels) == LevelTotal(3, 13)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (12_345_678, "12.3 MB"), (10**16, "10000.0 TB")]
)
def test_sizes_are_formatted_with_units(size: int, text: str) -> None:
    assert size_text(size) == text


def test_durations_below_a_second_are_milliseconds() -> None:
    assert (seconds_text(0.0042), seconds_text(0.999), seconds_text(1.26)) == ("4 ms", "999 ms", "1.3 s")


def test_values_carry_the_unit_of_their_profile() -> None:
    assert value_text(1_500_000_000, "nanoseconds") == "1.50 s"
    assert value_text(2_000, "bytes") == "2.0 KB"
    assert value_text(1234, "count") == "1,234"


def test_of_a_long_name_the_end_is_shown() -> None:
    assert name_text("short.name") == "short.name"
    assert name_text("a" * 100 + ".run") == "…" + "a" * 39 + ".run"


def test_equal_answers_differ_nowhere() -> None:
    assert differences([("f", 1), ("g", 2)], [("f", 1), ("g", 2)]) == []


def test_a_changed_a_missing_and_an_added_row_are_found() -> None:
    assert differences([("f", 1), ("g", 2)], [("f", 1), ("g", 3)]) == [1]
    assert differences([("f", 1)], []) == [0]
    assert differences([], [("f", 1)]) == [0]
