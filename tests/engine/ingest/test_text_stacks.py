"""Folded lines, lines, tries and trees: known answers of the format sheet, and untrusted bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ingest.model import Refused
from engine.ingest.text_stacks import StackCounts, parse_folded, parse_lines, parse_tree, parse_trie

tree = partial(parse_tree, name_bytes_max=65_535, children_max=16_000)
TRIE = bytes.fromhex("000001 02 6162 0002 01 63 0100 01 64 0200")
TREE = bytes.fromhex("000001 01 61 0002 01 62 0100 01 63 0200")


@pytest.mark.row("profile-api-5")
def test_folded_stacks_have_their_counts() -> None:
    assert parse_folded(b"foo;bar 10\nfoo;baz 20\n") == {(b"foo", b"bar"): 10, (b"foo", b"baz"): 20}


@pytest.mark.row("profile-api-6")
def test_a_line_is_a_stack_that_counts_one() -> None:
    assert parse_lines(b"foo;bar\nfoo;baz") == {(b"foo", b"bar"): 1, (b"foo", b"baz"): 1}


@pytest.mark.row("profile-api-7")
def test_trie_and_tree_give_their_stacks() -> None:
    assert parse_trie(TRIE) == {(b"abc",): 1, (b"abd",): 2}
    assert tree(TREE) == {(b"a", b"b"): 1, (b"a", b"c"): 2}


@pytest.mark.row("profile-api-8")
@pytest.mark.parametrize(
    "data", [b"\xff" * 9 + b"\x01", b"\x00\x00" + bytes.fromhex("817d")], ids=["name length", "child count 16001"]
)
def test_lengths_and_counts_beyond_the_limits_are_refused(data: bytes) -> None:
    with pytest.raises(Refused, match="exceeds maximum"):
        tree(data)


def test_equal_stacks_add_up_and_empty_lines_and_lines_without_count_are_skipped() -> None:
    assert parse_folded(b"a;b 1\r\n\r\na;b 2\nnocount\n") == {(b"a", b"b"): 3}


def test_one_semicolon_at_the_end_is_ignored_and_an_empty_part_is_a_frame() -> None:
    assert parse_folded(b"a;;b; 1") == {(b"a", b"", b"b"): 1}
    assert parse_lines(b"with space;x") == {(b"with space", b"x"): 1}


@pytest.mark.parametrize(
    "line", [b"a -1", b"a 1.5", b"a 1_0", b"a x", b"a ", b"a 9223372036854775808", b"a " + b"9" * 30]
)
def test_a_count_that_is_none_refuses_the_whole_push_and_names_the_line(line: bytes) -> None:
    with pytest.raises(Refused, match="line 2"):
        parse_folded(b"ok 1\n" + line)


def test_counts_that_would_leave_63_bits_together_are_refused() -> None:
    with pytest.raises(Refused, match="sum to more than 63 bits"):
        parse_folded(b"a 9223372036854775807\na 1")


def test_a_line_beyond_64_kib_is_refused() -> None:
    with pytest.raises(Refused, match="line 1 is longer"):
        parse_lines(b"x" * (1 << 16) + b"x")


def test_nesting_without_end_is_refused_before_it_costs_memory() -> None:
    deep = b"\x01a\x00\x01" * 200_000
    for parse in (parse_trie, tree):
        with pytest.raises(Refused, match="exceed"):
            parse(deep)


@pytest.mark.parametrize(
    "parse", [parse_folded, parse_lines, parse_trie, tree], ids=["folded", "lines", "trie", "tree"]
)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_stacks_or_are_refused(parse: Callable[[bytes], StackCounts], data: bytes) -> None:
    with contextlib.suppress(Refused):
        assert all(count >= 0 for count in parse(data).values())
