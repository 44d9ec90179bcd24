"""Speed of merging rows of stacks into the tree of a flame graph: (dataset, node, value) rows per second of one core.

The datasets are generated from a fixed seed with a realistic shape: each has a part of the stacks of one program, every
stack is 30 frames deep and shares most of them with others, one location in twenty has an inlined function, and a stack
occurs in each profile of its dataset. The other figures are the extremes: every row with a distinct stack, so that
adding rows up first has no effect, and the pure Python implementation.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.core.kernels import implementation_of
from engine.formats.profile_block.model import Function, Location, Mapping, StackTree, SymbolPartition
from engine.query.flame._flame_tree_py import StackMerge as Twin
from engine.query.flame.levels import flame_graph
from engine.query.flame.stack_table import StackTable, stack_table
from engine.query.flame.tree import FlameTree
from tests.bench.figures import Figures

NAME = "flame_tree"
SEED = 20261121
DEPTH = 30
DATASETS, DATASETS_FULL = 40, 200
STACKS_OF_PROGRAM, STACKS_PER_DATASET = 10_000, 2_000
PROFILES_PER_DATASET = 20
FUNCTIONS = 3_000
REPEATS = 5
SHOWN = 8192


@dataclass(frozen=True)
class Dataset:
    """The stacks of a dataset and its rows, one profile after the other."""

    stacks: StackTable
    nodes: NDArray[np.int32]
    values: NDArray[np.int64]


def run(full: bool = False) -> Figures:
    """Run the benchmark; every figure is CPU time of one core, median of the repeats."""
    draw = random.Random(SEED)
    program = made_program(draw)
    partitions = [made_partition(draw, program) for _ in range(DATASETS_FULL if full else DATASETS)]
    tables = [stack_table(partition) for partition, _ in partitions]
    leaves = [np.array(own, np.int32) for _, own in partitions]
    rows = [
        Dataset(table, np.tile(own, PROFILES_PER_DATASET), made_values(draw, PROFILES_PER_DATASET * len(own)))
        for table, own in zip(tables, leaves, strict=True)
    ]
    single = [Dataset(table, own, made_values(draw, len(own))) for table, own in zip(tables, leaves, strict=True)]
    row_count, single_count = (sum(len(one.nodes) for one in datasets) for datasets in (rows, single))
    rate = row_count / seconds(lambda: merged(rows))
    twin_rate = sum(len(one.nodes) for one in rows[:4]) / seconds(lambda: twin_merged(rows[:4]))
    tree = merged(rows)
    return Figures(
        parameters={
            "implementation": implementation_of("engine.query.flame._flame_tree"),
            "datasets": len(rows),
            "rows": row_count,
            "depth": DEPTH,
            "stacks_per_dataset": STACKS_PER_DATASET,
            "nodes": len(tree),
        },
        figures={
            "stacks_per_s_core": rate,
            "distinct_stacks_per_s_core": single_count / seconds(lambda: merged(single)),
            "speedup_over_twin": rate / twin_rate,
            "tables_ms_per_dataset": 1e3 * seconds(lambda: [stack_table(one) for one, _ in partitions]) / len(rows),
            "draw_ms": 1e3 * seconds(lambda: drawn(tree)),
        },
    )


def made_program(draw: random.Random) -> list[tuple[int, ...]]:
    """Return the stacks of a program: locations from the root on, ``DEPTH`` of each."""
    found: dict[tuple[int, ...], None] = {}
    path: tuple[int, ...] = ()
    while len(found) < STACKS_OF_PROGRAM:
        # Stacks diverge late: half of them within six frames of their ends.
        kept = max(0, len(path) - 1 - int(draw.expovariate(1 / 8)))
        path = path[:kept] + tuple(int(FUNCTIONS * draw.random() ** 3) for _ in range(DEPTH - kept))
        found[path] = None
    return list(found)


def made_partition(draw: random.Random, program: list[tuple[int, ...]]) -> tuple[SymbolPartition, list[int]]:
    """Return a dataset's symbols, numbered in their own order, and the nodes of its stacks."""
    order = draw.sample(range(FUNCTIONS), FUNCTIONS)
    names = draw.sample(range(FUNCTIONS), FUNCTIONS)
    refs = {name: ref for ref, name in enumerate(names, 1)}
    parents, places, leaves = [-1], [0], list[int]()
    children: dict[tuple[int, int], int] = {}
    for stack in draw.sample(program, STACKS_PER_DATASET):
        node = 0
        for place in stack:
            node = children.setdefault((node, place), len(parents))
            if node == len(parents):
                parents.append(0)
                places.append(order[place])
        leaves.append(node)
    for (parent, _), node in children.items():
        parents[node] = parent
    locations = {order[i]: (i, *((i // 20,) if i % 20 == 0 else ())) for i in range(FUNCTIONS)}
    return SymbolPartition(
        strings=[b"", *(b"example.org/service/package%d.(*Type%d).Method%d" % (i % 90, i % 400, i) for i in names)],
        mappings=[Mapping(0, 0, 0, 0, 0, 0)],
        functions=[Function(refs[i], 0, 0, 0) for i in range(FUNCTIONS)],
        locations=[Location(0, 0x1000 + i, tuple((own, 7) for own in locations[i])) for i in range(FUNCTIONS)],
        trees=[StackTree(parents, places)],
    ), leaves


def made_values(draw: random.Random, count: int) -> NDArray[np.int64]:
    """Return values like those of a CPU profile."""
    return np.random.default_rng(draw.getrandbits(32)).integers(1, 1000, count) * 10_000_000


def merged(datasets: list[Dataset]) -> FlameTree:
    """Merge the rows of all datasets."""
    tree = FlameTree()
    for dataset in datasets:
        tree.add_stacks(dataset.stacks, dataset.nodes, dataset.values)
    return tree


def drawn(tree: FlameTree) -> None:
    """Draw a tree without its cached node order."""
    tree.add_stack([], 0)  # Invalidates the node order.
    flame_graph(tree, SHOWN)


def twin_merged(datasets: list[Dataset]) -> None:
    """Merge the rows of all datasets in pure Python."""
    merge = Twin()
    for own in datasets:
        table = own.stacks
        merge.add(table.names, table.parents, table.locations, table.frame_starts, table.frames, own.nodes, own.values)


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of one call, median of the repeats."""
    work()
    spent: list[float] = []
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        spent.append(time.process_time() - started)
    return statistics.median(spent)
