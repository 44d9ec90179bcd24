"""A search finds what counting over the stacks finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.query.flame.name_search import matched
from tests.engine.query.flame.stacks import Stacks, folded, tree_of

names = st.sampled_from([b"main", b"Main", b"work", b"remains", b"x"])
STACKS = st.dictionaries(st.lists(names, max_size=5).map(tuple), st.integers(1, 1000), max_size=12)


def naive(stacks: Stacks, text: str) -> int:
    return sum(value for stack, value in stacks.items() if any(text in name.decode().lower() for name in stack))


def test_a_stack_counts_once_and_case_does_not() -> None:
    found = matched([tree_of(folded("main;work;MAIN 5, work 3, idle 2"))], "Main")
    assert found == (2, (5,))


@given(STACKS, STACKS, st.sampled_from(["main", "w", "zzz"]))
def test_both_sides_are_counted(left: Stacks, right: Stacks, text: str) -> None:
    one, other = tree_of(left), tree_of(right)
    assert matched([one], text).totals == (naive(left, text),)
    assert matched([one, other], text).totals == (naive(left, text), naive(right, text))
