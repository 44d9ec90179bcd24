"""What leaves as bytes and text: tree bytes, folded stacks, the JSON document."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from engine.core.errors import LimitExceeded
from engine.ingest.text_stacks import parse_folded
from engine.query.flame.flamebearer import Units, flamebearer, units_of
from engine.query.flame.folded import folded_lines
from engine.query.flame.levels import flame_graph, flame_graph_diff
from engine.query.flame.tree import FlameTree
from engine.query.flame.tree_bytes import encode_tree
from engine.query.flame.truncation import truncated
from tests.engine.query.flame.stacks import Stacks, folded, stack_sets, tree_of

EXAMPLE = "main;work;parse 30, main;work;render 50, main;work 5, main;idle 10, gc 5"


def read_tree(data: bytes) -> Stacks:
    """Read tree bytes by the rules of the sheet, with a stack of what is still to come."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    found: Stacks = {}
    waiting: list[tuple[bytes, ...] | None] = [None] if data else []
    while waiting:
        above = waiting.pop()
        length = number()
        name = data[at : at + length]
        at += length
        path = () if above is None else (*above, name)
        if own := number():
            assert path not in found
            found[path] = own
        waiting += [path] * number()
    assert at == len(data)
    return found


@pytest.mark.parametrize(
    ("max_nodes", "expected"),
    [
        (
            0,
            "00 00 02 046d61696e 00 02 04776f726b 05 02 0672656e646572 32 00 057061727365 1e 00 0469646c65 0a 00"
            "026763 05 00",
        ),
        (
            4,
            "00 00 02 056f74686572 05 00 046d61696e 00 02 04776f726b 05 02 0672656e646572 32 00 057061727365 1e 00"
            "056f74686572 0a 00",
        ),
    ],
)
def test_known_tree_bytes(max_nodes: int, expected: str) -> None:
    """Examples 1 and 2 of the sheet; in the second ``other`` is sorted among its siblings."""
    assert encode_tree(truncated(tree_of(folded(EXAMPLE)), max_nodes)) == bytes.fromhex(expected)


@given(stack_sets)
def test_tree_bytes_hold_the_tree(stacks: Stacks) -> None:
    assert read_tree(encode_tree(tree_of(stacks))) == stacks


def test_an_empty_tree_has_no_bytes() -> None:
    assert encode_tree(FlameTree()) == b""


def test_folded_stacks_come_callers_first() -> None:
    tree = tree_of(folded(EXAMPLE))
    tree.add_stack([], 2)
    assert list(folded_lines(tree)) == [
        "(no frames) 2",
        "gc 5",
        "main;idle 10",
        "main;work 5",
        "main;work;parse 30",
        "main;work;render 50",
    ]


@given(stack_sets)
def test_what_is_folded_is_a_push_that_we_take(stacks: Stacks) -> None:
    """Names that are text and not empty come back as they were."""
    texts = {
        stack: value for stack, value in stacks.items() if stack and all(name and name != b"\xff" for name in stack)
    }
    lines = "".join(line + "\n" for line in folded_lines(tree_of(texts)))
    assert parse_folded(lines.encode()) == texts


def test_names_cannot_break_a_line_or_a_frame() -> None:
    tree = tree_of({(b"a;b\nc\r", b"\xff"): 3})
    assert list(folded_lines(tree)) == ["a:b c ;\ufffd 3"]


def test_text_that_repeats_its_callers_too_often_is_refused() -> None:
    tree = FlameTree()
    for depth in range(1, 100):
        tree.add_stack([b"frame"] * depth, 1)
    size = sum(len(line) + 1 for line in folded_lines(tree))
    assert len(list(folded_lines(tree, bytes_max=size))) == 99
    with pytest.raises(LimitExceeded):
        list(folded_lines(tree, bytes_max=size - 1))


@pytest.mark.parametrize(
    ("sample_type", "unit", "expected"),
    [
        ("cpu", "nanoseconds", Units("samples", 10**9)),
        ("inuse_objects", "count", Units("objects", 100)),
        ("alloc_objects", "count", Units("objects", 100)),
        ("goroutine", "count", Units("objects", 100)),
        ("samples", "count", Units("objects", 100)),
        ("inuse_space", "bytes", Units("bytes", 100)),
        ("wall", "nanoseconds", Units("nanoseconds", 100)),
        ("contentions", "count", Units("count", 100)),
    ],
)
def test_units_of_values(sample_type: str, unit: str, expected: Units) -> None:
    assert units_of(sample_type, unit) == expected


def test_the_document_of_one_graph() -> None:
    """Row 47 of the sheet's known answers."""
    document = flamebearer(flame_graph(tree_of(folded("a 3"))), "inuse_space", "bytes")
    assert json.loads(json.dumps(document)) == {
        "version": 1,
        "flamebearer": {"names": ["total", "a"], "levels": [[0, 3, 0, 0], [0, 3, 3, 1]], "numTicks": 3, "maxSelf": 3},
        "metadata": {"format": "single", "spyName": "", "sampleRate": 100, "units": "bytes", "name": "inuse_space"},
        "timeline": None,
        "groups": None,
        "heatmap": None,
    }


def test_the_document_of_a_difference() -> None:
    graph = flame_graph_diff(tree_of(folded("a 3")), FlameTree())
    document = flamebearer(graph, "cpu", "nanoseconds", timeline={"startTime": 0})
    assert document["metadata"]["format"] == "double"
    assert document["leftTicks"] == 3
    assert "rightTicks" not in document
    assert document["timeline"] == {"startTime": 0}
