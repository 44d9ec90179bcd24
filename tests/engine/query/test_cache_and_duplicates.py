"""What questions share: a cache that stays in its bounds, and what tells one row from another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.query.duplicates import shared_times
from engine.storage.section_cache import SectionCache


def test_the_least_recently_used_entry_is_evicted_first() -> None:
    cache = SectionCache(10)
    made: list[str] = []

    def get(key: str, size: int = 4) -> str:
        def make() -> tuple[str, int]:
            made.append(key)
            return key.upper(), size

        return cache.get(key, make)

    assert [get("a"), get("b"), get("a"), get("c")] == ["A", "B", "A", "C"]
    assert (made, cache.bytes_held) == (["a", "b", "c"], 8)
    assert [get("a"), get("b")] == ["A", "B"]
    assert made == ["a", "b", "c", "b"]
    get("huge", 11)
    get("huge", 11)
    assert made[-2:] == ["huge", "huge"], "what is larger than all of the cache is not kept"
    assert (cache.bytes_held, cache.hits, cache.misses) == (8, 2, 6)


def test_what_cannot_be_made_is_not_kept() -> None:
    cache = SectionCache(10)

    def fail() -> tuple[str, int]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.get("a", fail)
    assert cache.get("a", lambda: ("good", 1)) == "good"


SPANS = st.tuples(st.integers(0, 30), st.integers(0, 9)).map(lambda pair: (pair[0], sum(pair)))


@given(st.lists(SPANS, max_size=6))
def test_times_are_shared_where_two_spans_have_them(spans: list[tuple[int, int]]) -> None:
    starts, ends = shared_times(spans)
    zones = list(zip(starts.tolist(), ends.tolist(), strict=True))
    assert zones == sorted(zones)
    for time in range(41):
        count = sum(start <= time <= end for start, end in spans)
        assert (count > 1) == any(start <= time <= end for start, end in zones)
