"""A call graph in DOT (Graphviz): a node per function, an edge per call.

Recursive functions and repeated calls count once per stack. Only the largest functions are shown; a call through hidden
functions is a dashed edge from the nearest function shown.
"""

from __future__ import annotations

from collections import Counter

from engine.query.flame.top_table import top_table
from engine.query.flame.tree import FlameTree
from engine.query.flame.truncation import truncated

FUNCTIONS = 100
"""Default number of functions shown."""
SOURCE_NODES = 8_192
"""Maximum tree nodes considered; the rest of each parent is in its ``other``."""

Call = tuple[int, int]


def dot_graph(tree: FlameTree, functions: int = FUNCTIONS) -> str:
    """Return the call graph of the ``functions`` with the largest totals; "" of an empty tree."""
    if not tree.total:
        return ""
    source = truncated(tree, max(SOURCE_NODES, functions))
    shown = sorted(top_table(source), key=lambda row: (-row.total, row.name))[: max(1, functions)]
    numbers = {row.name: number for number, row in enumerate(shown, 1)}
    boxes = [
        f"N{number} [label={_quoted(row.name, f'{row.own} of {row.total}')}];" for number, row in enumerate(shown, 1)
    ]
    calls, direct = _calls(source, numbers)
    arrows = [
        f'N{caller} -> N{callee} [label="{value}"{"" if (caller, callee) in direct else ", style=dashed"}];'
        for (caller, callee), value in sorted(calls.items())
    ]
    return "\n".join(["digraph {", "node [shape=box];", *boxes, *arrows, "}", ""])


def _calls(tree: FlameTree, numbers: dict[str, int]) -> tuple[Counter[Call], set[Call]]:
    """Return the value of each call between shown functions, and the direct calls."""
    nodes = tree.nodes()
    own_numbers = [numbers.get(name.decode("utf-8", "replace"), 0) for name in nodes.names]
    refs, totals, starts = nodes.name_refs.tolist(), nodes.totals.tolist(), nodes.child_starts.tolist()
    calls: Counter[Call] = Counter()
    direct: set[Call] = set()
    open_calls: Counter[Call] = Counter()
    waiting: list[tuple[int, int, bool, Call | None]] = [(0, 0, True, None)]
    while waiting:
        node, caller, is_direct, done = waiting.pop()
        if done is not None:
            open_calls[done] -= 1
            continue
        callee = own_numbers[refs[node]] if node else 0
        if caller and callee:
            call = (caller, callee)
            if not open_calls[call]:
                calls[call] += totals[node]
            if is_direct:
                direct.add(call)
            open_calls[call] += 1
            waiting.append((node, 0, False, call))
        nearest = callee or caller
        waiting.extend((child, nearest, bool(callee), None) for child in range(starts[node], starts[node + 1]))
    return calls, direct


def _quoted(*lines: str) -> str:
    """Return lines as one label."""
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\r", " ") for line in lines)
    return '"' + "\\n".join(escaped).replace("\0", " ") + '"'
