"""The tree of merged stacks: a dictionary of stacks, whatever it was merged from; hostile tables have no effect."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import BadReference, LimitExceeded
from engine.formats.profile_block.model import Function, Location, Mapping, StackTree, SymbolPartition
from engine.formats.profile_block.symbols.symbols import decode_symbols
from engine.query.flame import tree as flame_tree
from engine.query.flame._flame_tree_py import StackMerge as Twin
from engine.query.flame.stack_table import StackTable, stack_table
from engine.query.flame.tree import FlameTree, align
from engine.query.stacks import StackResolver
from tests.engine.conftest import ForeignBlocks
from tests.engine.query.flame.stacks import (
    Stacks,
    folded,
    naive_totals,
    stack_sets,
    stacks_of,
    totals_of,
    tree_of,
)

INT64_MAX = (1 << 63) - 1


def table(**changes: object) -> StackTable:
    """main calls work, which has parse inlined; a second root calls main too."""
    stacks = StackTable(
        names=[b"", b"main", b"work", b"parse"],
        parents=np.array([-1, 0, 1, 1, -1, 4], np.int32),
        locations=np.array([0, 0, 1, 2, 0, 0], np.int32),
        frame_starts=np.array([0, 1, 3, 3], np.int32),
        frames=np.array([1, 3, 2], np.int32),
        first_nodes=(0, 4),
        tree_size=10,
    )
    return replace(stacks, **changes)  # type: ignore[arg-type]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_rows_become_nodes_with_own_values_and_totals() -> None:
    tree = FlameTree()
    tree.add_stacks(table(), [1, 2, 2, 3, 5, 0, 2], [1, 10, 100, 1000, 5, 7, -3])
    assert stacks_of(tree) == {(): 7, (b"main",): 1001 + 5, (b"main", b"work", b"parse"): 110}
    assert totals_of(tree) == {
        (): 1123,
        (b"main",): 1116,
        (b"main", b"work"): 110,
        (b"main", b"work", b"parse"): 110,
    }
    assert (tree.total, len(tree)) == (1123, 3)


def test_nodes_come_by_level_and_name() -> None:
    nodes = tree_of(folded("b;z 1, b;a 2, a 3, b;a;z 4")).nodes()
    assert nodes.names == [b"a", b"b", b"z"]
    assert nodes.parents.tolist() == [-1, 0, 0, 2, 2, 3]
    assert nodes.name_refs.tolist() == [-1, 0, 1, 0, 2, 2]
    assert nodes.own.tolist() == [0, 3, 0, 2, 1, 4]
    assert nodes.totals.tolist() == [10, 3, 7, 6, 1, 4]
    assert nodes.child_starts.tolist() == [1, 3, 3, 5, 6, 6, 6]


def test_what_no_value_leads_to_is_not_there() -> None:
    tree = FlameTree()
    tree.add_stacks(table(), [1, 2], [1, 0])
    tree.add_stacks(table(), [], [])
    assert (tree.nodes().names, len(tree)) == ([b"main"], 1)
    assert len(FlameTree()) == 0
    assert FlameTree().nodes().totals.tolist() == [0]


@given(stack_sets)
def test_a_tree_is_a_dictionary_of_stacks(stacks: Stacks) -> None:
    tree = tree_of(stacks)
    assert stacks_of(tree) == stacks
    assert totals_of(tree) == naive_totals(stacks)
    assert tree.total == sum(stacks.values())


@pytest.mark.slow
@given(st.lists(stack_sets, max_size=4), st.randoms())
def test_neither_the_order_nor_the_grouping_of_what_is_added_matters(parts: list[Stacks], draw: object) -> None:
    whole = FlameTree()
    for part in parts:
        whole.add_tree(tree_of(part))
    rows = [row for part in parts for row in part.items()]
    draw.shuffle(rows)  # type: ignore[attr-defined]
    one_by_one = FlameTree()
    for stack, value in rows:
        one_by_one.add_stack(stack, value)
    assert whole == one_by_one
    assert whole.nodes().names == one_by_one.nodes().names


@given(stack_sets, stack_sets)
def test_two_trees_lie_over_each_other(left: Stacks, right: Stacks) -> None:
    aligned = align(tree_of(left), tree_of(right))
    nodes = aligned.nodes
    both = FlameTree.of_nodes(nodes.names, nodes.parents, nodes.name_refs, aligned.left_own + aligned.right_own)
    assert stacks_of(both) == {stack: left.get(stack, 0) + right.get(stack, 0) for stack in {**left, **right}}
    for own, totals, side in (
        (aligned.left_own, aligned.left_totals, left),
        (aligned.right_own, aligned.right_totals, right),
    ):
        assert stacks_of(FlameTree.of_nodes(nodes.names, nodes.parents, nodes.name_refs, own)) == side
        assert totals[0] == sum(side.values())
    assert not (aligned.left_totals + aligned.right_totals - nodes.totals).any()


@given(st.data())
def test_what_rows_add_up_to_is_that_of_the_twin(data: st.DataObject) -> None:
    """Any table, damaged or not, gives what the twin gives, or the same refusal."""
    count = data.draw(st.integers(1, 8))
    small = st.integers(-2, 9)
    parents = [data.draw(st.integers(-1, max(-1, node - 1)) | small) for node in range(count)]
    arguments = (
        [b"x", b"y", b"z"],
        np.array(parents, np.int32),
        np.array(data.draw(st.lists(st.integers(0, 2) | small, min_size=count, max_size=count)), np.int32),
        np.array(data.draw(st.sampled_from([[0, 1, 3, 4], [0, 2, 1, 4], [0, 0, 0, 9], [-1, 0, 0, 0]])), np.int32),
        np.array(data.draw(st.lists(st.integers(0, 2) | small, min_size=4, max_size=4)), np.int32),
    )
    rows = data.draw(st.lists(st.tuples(st.integers(0, count - 1) | small, st.integers(-1, INT64_MAX)), max_size=6))
    nodes, values = np.array([row[0] for row in rows], np.int32), np.array([row[1] for row in rows], np.int64)
    outcomes = []
    for merge in (flame_tree.StackMerge(5), Twin(5)):
        try:
            placed = merge.add(*arguments, nodes, values).tolist()
        except (BadReference, LimitExceeded) as error:
            placed = [type(error).__name__, str(error)]
        found = merge.nodes()
        outcomes.append([placed, merge.total, found.names, *(column.tolist() for column in found[1:])])
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"parents": ints(-1, 0, 1, 3, -1, 4)}, "node 3 of a stack tree has parent 3"),
        ({"parents": ints(-1, 2, 1, 1, -1, 4)}, "node 1 of a stack tree has parent 2"),
        ({"parents": ints(-1, 0, 1, 1, -2, 4)}, "node 4 of a stack tree has parent -2"),
        ({"locations": ints(0, 3, 1, 2, 0, 0)}, "location 3 of 3"),
        ({"locations": ints(0, -1, 1, 2, 0, 0)}, "location -1 of 3"),
        ({"frame_starts": ints(0, 4, 3, 3)}, "location 0 has the frames 0 to 4 of 3"),
        ({"frame_starts": ints(1, 0, 3, 3)}, "location 0 has the frames 1 to 0 of 3"),
        ({"frame_starts": ints(-1, 1, 3, 3)}, "location 0 has the frames -1 to 1 of 3"),
        ({"frames": ints(4, 3, 2)}, "location 0 has name 4 of 4"),
        ({"frames": ints(-1, 3, 2)}, "location 0 has name -1 of 4"),
    ],
)
def test_tables_that_lead_nowhere_are_refused(changes: dict[str, object], reason: str) -> None:
    tree = tree_of({(b"x",): 3})
    with pytest.raises(BadReference, match=reason):
        tree.add_stacks(table(**changes), [2], [1])
    assert (tree.total, stacks_of(tree)) == (3, {(b"x",): 3})


@pytest.mark.parametrize("node", [-1, 6, (1 << 31) - 1])
def test_a_row_without_a_stack_is_refused(node: int) -> None:
    tree = FlameTree()
    with pytest.raises(BadReference, match=f"stack {node} is not"):
        tree.add_stacks(table(), [1, node], [1, 0])
    assert tree.total == 0


@pytest.mark.parametrize("values", [[INT64_MAX, 1], [1, INT64_MAX], [INT64_MAX, INT64_MAX, INT64_MAX]])
def test_values_that_add_up_to_too_much_are_refused(values: list[int]) -> None:
    tree = FlameTree()
    with pytest.raises(LimitExceeded):
        tree.add_stacks(table(), [1] * len(values), values)
    assert (tree.total, len(tree)) == (0, 0)
    tree.add_stack([b"a"], INT64_MAX)
    with pytest.raises(LimitExceeded):
        tree.add_stack([b"b"], 1)
    assert stacks_of(tree) == {(b"a",): INT64_MAX}


def test_numbers_that_no_column_holds_are_refused() -> None:
    tree = FlameTree()
    for nodes, values in (([1 << 31], [1]), ([1 << 40], [1]), ([1], [1 << 63]), ([1], [1 << 80]), ([-(1 << 63)], [1])):
        with pytest.raises(LimitExceeded):
            tree.add_stacks(table(), nodes, values)
    with pytest.raises(TypeError):
        tree.add_stacks(table(), [1.0], [1])
    for wrong in ({"locations": ints(0)}, {"frame_starts": ints()}, {"parents": ints()}):
        with pytest.raises(ValueError, match="differ in length"):
            tree.add_stacks(table(**wrong), [], [])
    with pytest.raises(ValueError, match="differ in length"):
        tree.add_stacks(table(), [1], [1, 2])


def test_a_tree_is_not_touched_while_it_grows(merge_implementation: str) -> None:
    if merge_implementation != "compiled":
        pytest.skip("the twin does not let others run")
    tree = FlameTree()
    refused: list[str] = []

    class Names(tuple[bytes, ...]):
        def __getitem__(self, at: object) -> bytes:
            for touch in (lambda: tree.add_stack([b"x"], 1), tree.nodes):
                with pytest.raises(RuntimeError) as error:
                    touch()
                refused.append(str(error.value))
            return b"name"

    tree.add_nodes(Names([b"a"]), [-1, 0], [0, 0], [0, 1])
    assert len(refused) == 2
    assert stacks_of(tree) == {(b"name",): 1}


def test_a_tree_has_a_largest_size() -> None:
    tree = FlameTree(nodes_max=3)
    tree.add_stack([b"a", b"b", b"c"], 1)
    with pytest.raises(LimitExceeded, match="more than 3 nodes"):
        tree.add_stack([b"a", b"b", b"d"], 1)
    assert stacks_of(tree) == {(b"a", b"b", b"c"): 1}


@pytest.mark.slow
def test_a_stack_may_be_as_deep_as_there_are_nodes() -> None:
    depth = 30_000
    tree = FlameTree()
    tree.add_stack([b"f"] * depth, 2)
    nodes = tree.nodes()
    assert (len(tree), nodes.totals.tolist(), nodes.own[-1]) == (depth, [2] * (depth + 1), 2)


def partition() -> SymbolPartition:
    """Two trees; inlined frames, a location without lines with and without a binary, equal names of two functions."""
    return SymbolPartition(
        strings=[b"", b"main", b"work", b"parse", b"/usr/lib/libssl.so.3"],
        mappings=[Mapping(0, 0, 0, 0, 0, 0), Mapping(4, 0, 0, 0, 0, 0)],
        functions=[Function(1, 0, 0, 0), Function(2, 0, 0, 0), Function(3, 0, 0, 0), Function(1, 0, 0, 7)],
        locations=[
            Location(0, 0, ((0, 1),)),
            Location(0, 0, ((2, 1), (1, 9))),
            Location(1, 0x7F12, ()),
            Location(0, 0, ()),
            Location(0, 0, ((3, 5),)),
        ],
        trees=[StackTree([-1, 0, 1, 2], [99, 0, 1, 2], max_nodes=8), StackTree([-1, 0, 1], [0, 4, 3], max_nodes=8)],
    )


def test_a_partition_becomes_a_table() -> None:
    stacks = stack_table(partition())
    tree = FlameTree()
    tree.add_stacks(stacks, stacks.nodes_of(np.array([3, 9, 10, 1, 0, 8], np.uint64)), [1, 2, 4, 8, 16, 32])
    assert stacks_of(tree) == {
        (): 48,
        (b"main",): 10,
        (b"main", b"unknown!0x0"): 4,
        (b"main", b"work", b"parse", b"libssl.so.3!0x7f12"): 1,
    }


def test_lines_without_any_function_mean_nothing() -> None:
    bare = partition()
    bare.functions = []
    stacks = stack_table(bare)
    tree = FlameTree()
    tree.add_stacks(stacks, stacks.nodes_of([3]), [1])
    assert stacks_of(tree) == {(b"unknown!0x0", b"unknown!0x0", b"libssl.so.3!0x7f12"): 1}


@pytest.mark.parametrize("stack", [4, 7, 11, 16, -1, 1 << 62, (1 << 64) - 1])
def test_a_stack_id_of_no_tree_is_refused(stack: int) -> None:
    with pytest.raises(BadReference, match=f"stack {stack} is not"):
        stack_table(partition()).nodes_of(np.array([stack]))


def test_one_tree_may_have_any_number_of_ids() -> None:
    single = partition()
    single.trees = [StackTree([-1, 0], [0, 0], max_nodes=0)]
    stacks = stack_table(single)
    assert stacks.nodes_of([1, 0]).tolist() == [1, 0]
    assert stacks.nodes_of([]).tolist() == []
    with pytest.raises(BadReference):
        stacks.nodes_of([2])
    single.trees = []
    with pytest.raises(BadReference):
        stack_table(single).nodes_of([0])


@pytest.mark.foreign_data
def test_real_stacks_have_the_names_that_resolving_them_one_by_one_gives(foreign_blocks: ForeignBlocks) -> None:
    seen = 0
    for block in foreign_blocks.all():
        for section in block.sections(2):
            for own in decode_symbols(section):
                stacks, resolver = stack_table(own), StackResolver(own)
                wanted = range(len(own.trees[0].parents))
                expected: Stacks = {}
                for stack in wanted:
                    path = tuple(name.encode() for name in reversed(resolver.functions(stack)))
                    expected[path] = expected.get(path, 0) + stack + 1
                if all(location.lines for location in own.locations):
                    tree = FlameTree()
                    tree.add_stacks(stacks, stacks.nodes_of(wanted), [stack + 1 for stack in wanted])
                    assert stacks_of(tree) == expected
                    seen += 1
    assert seen == 9
