"""Labels seen before: the answer is the remembered one, unless the labels are long or were refused."""

from __future__ import annotations

import pytest

from engine.formats.profile_block.model import Labels
from engine.ingest.segments.label_memory import LENGTH_MAX, remembered


def test_short_labels_are_looked_at_once_and_long_ones_each_time() -> None:
    seen: list[tuple[int, str]] = []

    @remembered
    def count(labels: Labels, tenant: str) -> int:
        seen.append((len(labels), tenant))
        return len(seen)

    short, long = (("a", "b"),), (("a", "b" * LENGTH_MAX),)
    assert [count(short, "x"), count((("a", "b"),), "x"), count(short, "y")] == [1, 1, 2]
    assert [count(long, "x"), count(long, "x")] == [3, 4]


def test_what_was_refused_is_refused_again() -> None:
    @remembered
    def refuse(labels: Labels) -> int:
        raise ValueError(labels[0][0])

    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            refuse((("a", "b"),))
