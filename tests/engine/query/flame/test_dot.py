"""Call graphs in DOT: boxes and arrows with their values."""

from __future__ import annotations

from engine.query.flame.dot import dot_graph
from engine.query.flame.tree import FlameTree


def tree_of(**stacks: int) -> FlameTree:
    """Return a tree; names are joined by underscores."""
    tree = FlameTree()
    for stack, value in stacks.items():
        tree.add_stack([name.encode() for name in stack.split("_")], value)
    return tree


def test_boxes_have_own_and_total_values_and_arrows_what_went_through() -> None:
    assert dot_graph(tree_of(main_work_parse=30, main_work=5, main_idle=10, gc=5)).splitlines() == [
        "digraph {",
        "node [shape=box];",
        'N1 [label="main\\n0 of 45"];',
        'N2 [label="work\\n5 of 35"];',
        'N3 [label="parse\\n30 of 30"];',
        'N4 [label="idle\\n10 of 10"];',
        'N5 [label="gc\\n5 of 5"];',
        'N1 -> N2 [label="35"];',
        'N1 -> N4 [label="10"];',
        'N2 -> N3 [label="30"];',
        "}",
    ]


def test_what_is_left_out_is_called_through() -> None:
    tree = tree_of(a_z_e=7, a_b_c=5, a_c=1)
    assert dot_graph(tree, 2).splitlines()[2:-1] == [
        'N1 [label="a\\n0 of 13"];',
        'N2 [label="e\\n7 of 7"];',
        'N1 -> N2 [label="7", style=dashed];',
    ]
    assert 'N1 -> N4 [label="6"];' in dot_graph(tree, 4), "to c, of which one went there directly"


def test_a_call_repeated_in_a_stack_counts_once() -> None:
    lines = dot_graph(tree_of(a_b_a_b=4, a_b=1)).splitlines()
    assert lines[2:-1] == [
        'N1 [label="a\\n0 of 5"];',
        'N2 [label="b\\n5 of 5"];',
        'N1 -> N2 [label="5"];',
        'N2 -> N1 [label="4"];',
    ]


def test_names_cannot_end_a_label_and_nothing_is_nothing() -> None:
    tree = FlameTree()
    tree.add_stack([b'say "\\n"\n];\xff'], 1)
    assert 'N1 [label="say \\"\\\\n\\" ];\ufffd\\n1 of 1"];' in dot_graph(tree)
    assert dot_graph(FlameTree()) == ""
