"""Flame graphs of the real blocks of another program, queried through the query engine."""

from __future__ import annotations

import pytest

from engine.formats.profile_block.selectors import parse_selector
from engine.query.execution import QueryEngine
from engine.query.flame.levels import flame_graph, flame_graph_diff
from engine.query.flame.top_table import top_table
from engine.query.flame.tree import FlameTree
from engine.query.model import Question, blocks_of
from engine.query.select_stacks import select_stacks
from tests.engine.conftest import ForeignBlocks
from tests.engine.formats.profile_block.factories import CPU
from tests.engine.query.flame.stacks import read_levels, stacks_of
from tests.engine.query.naive import Folded

pytestmark = pytest.mark.foreign_data


def asked(foreign_blocks: ForeignBlocks, service: str, profile_type: str, *prefixes: str) -> FlameTree:
    """Return the tree of all rows of a service, after comparing it with its stacks added up one by one."""
    found = [foreign_blocks[prefix] for prefix in prefixes] or foreign_blocks.all()
    blocks = blocks_of((block.key, block.meta) for block in found)
    selector = parse_selector(f'{{service_name="{service}"}}')
    question = Question(start_ms=1, end_ms=1 << 42, matchers=selector).of_type(profile_type)
    engine = QueryEngine(foreign_blocks.store)
    tree, one_by_one = FlameTree(), Folded()
    for target in (tree, one_by_one):
        select_stacks(engine.run(), blocks, question, target)
    engine.close()
    expected = {tuple(name.encode() for name in stack): value for stack, value in one_by_one.stacks.items() if value}
    assert stacks_of(tree) == expected
    return tree


def test_own_values_are_the_known_ones(foreign_blocks: ForeignBlocks) -> None:
    tree = asked(foreign_blocks, "pyroscope", CPU)
    largest = {row.name: row.own for row in top_table(tree)[:4]}
    assert tree.total == 6220000000
    assert largest == {
        "syscall.syscall": 1120000000,
        "runtime.pthread_cond_signal": 710000000,
        "runtime.kevent": 650000000,
        "runtime.pthread_cond_wait": 500000000,
    }


@pytest.mark.parametrize("max_nodes", [0, 1, 16, 100])
def test_a_real_graph_keeps_its_total_however_it_is_cut(foreign_blocks: ForeignBlocks, max_nodes: int) -> None:
    tree = asked(foreign_blocks, "pyroscope", CPU)
    graph = flame_graph(tree, max_nodes)
    nodes = read_levels(graph.names, graph.levels)
    assert graph.total == sum(node.own for node in nodes) == 6220000000
    others = sum(node.path[-1:] == ("other",) for node in nodes)
    if max_nodes:
        assert max_nodes <= len(nodes) - 1 - others < len(tree)
        assert others > 0
    else:
        assert (len(nodes) - 1, others) == (len(tree), 0)


def test_two_real_blocks_are_compared(foreign_blocks: ForeignBlocks) -> None:
    left = asked(foreign_blocks, "test-app", CPU, "01JKT2XEGT")
    right = asked(foreign_blocks, "test-app", CPU, "01JKT42699")
    graph = flame_graph_diff(left, right, 10)
    assert (graph.left_total, graph.right_total) == (349200000000, 8730000000)
    for side, total in enumerate((graph.left_total, graph.right_total)):
        assert sum(level[at + 2 + 3 * side] for level in graph.levels for at in range(0, len(level), 7)) == total
