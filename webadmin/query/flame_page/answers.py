"""JSON of one tree, or of two that are compared, for the page: graph, table, search, sandwich.

A tree is sent as columns, cut to the largest nodes. Totals, table and search results are computed on the whole tree
before the cut. Each value is a list with one number per side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.query.flame.frame_paths import path_to, subtree
from engine.query.flame.levels import shown_difference
from engine.query.flame.name_search import fits_search, matched
from engine.query.flame.nodes import Int64s, Nodes
from engine.query.flame.sandwich import sandwich
from engine.query.flame.top_table import top_table, top_table_diff
from engine.query.flame.tree import FlameTree
from engine.query.flame.truncation import OTHER, shown_nodes

NODES_SHOWN = 4_000
"""Maximum frames of a graph; more cannot be distinguished on a screen. Focus on a part to see smaller ones."""
ROWS_SHOWN = 1_000
ROOT_NAME = "total"

Trees = Sequence[FlameTree]


def graph_json(trees: Trees, focus: int | None = None, search: str = "") -> dict[str, Any]:
    """Return the graph of the tree, or of the part below ``focus``, with the table and the search result.

    ``focus`` in the result is None for the whole tree, else the path to the part. ``focus_lost`` is true if the part
    does not exist, in which case the whole tree is returned.
    """
    path, parts = _focused(trees, focus)
    found = matched(trees, search) if search else None
    return {
        "totals": [tree.total for tree in trees],
        "graph": columns_json(parts),
        "focus": path or None,
        "focus_lost": focus is not None and not path,
        "search": found and {"text": search, "functions": found.functions, "totals": list(found.totals)},
        "top": top_json(trees, search),
    }


def sandwich_json(trees: Trees, function: str) -> dict[str, Any]:
    """Return the callers and callees of a function, with its totals."""
    name = _stored_name(trees, function)
    found = [sandwich(tree, name) for tree in trees]
    return {
        "function": function,
        "totals": [tree.total for tree in trees],
        "function_totals": [one.callees.total for one in found],
        "callers": columns_json([one.callers for one in found]),
        "callees": columns_json([one.callees for one in found]),
    }


def columns_json(trees: Trees) -> dict[str, Any]:
    """Return a tree as columns, cut to the largest nodes.

    Node i is named ``names[refs[i]]`` and follows its parent; the parent of the root is -1. A leaf ``other`` in ``cut``
    is the sum of children that were cut.
    """
    nodes, own, totals = _shown(trees)
    names = [ROOT_NAME, *(name.decode("utf-8", "replace") for name in nodes.names)]
    refs = (nodes.name_refs + 1).tolist()
    last = len(nodes.names)
    leaf_names = {last} if nodes.names and nodes.names[-1] == OTHER else set()
    return {
        "names": names,
        "parents": nodes.parents.tolist(),
        "refs": refs,
        "own": [column.tolist() for column in own],
        "totals": [column.tolist() for column in totals],
        "cut": [place for place, ref in enumerate(refs) if ref in leaf_names],
    }


def top_json(trees: Trees, search: str = "") -> dict[str, Any]:
    """Return the functions that match the search with the largest own values, and those with the largest totals.

    A row is the name, then own value and total of each side. ``functions`` counts all matches.
    """
    rows = [list(row) for row in (top_table(trees[0]) if len(trees) == 1 else top_table_diff(*trees))]
    if search:
        rows = [row for row in rows if fits_search(str(row[0]).encode("utf-8", "replace"), search)]
    count = len(rows)
    if count > ROWS_SHOWN:
        by_total = sorted(rows, key=_largest_total, reverse=True)[: ROWS_SHOWN // 2]
        rows = [*rows[: ROWS_SHOWN // 2], *by_total]
        rows = list({row[0]: row for row in rows}.values())
    return {"functions": count, "rows": rows}


def _largest_total(row: list[Any]) -> int:
    return int(row[2] if len(row) == 3 else abs(row[4] - row[2]))


def _shown(trees: Trees) -> tuple[Nodes, list[Int64s], list[Int64s]]:
    if len(trees) == 1:
        nodes = shown_nodes(trees[0], NODES_SHOWN)
        return nodes, [nodes.own], [nodes.totals]
    left, right = trees
    shown = shown_difference(left, right, NODES_SHOWN)
    return shown.nodes, [shown.left_own, shown.right_own], [shown.left_totals, shown.right_totals]


def _focused(trees: Trees, focus: int | None) -> tuple[list[dict[str, Any]], list[FlameTree]]:
    """Return the path to a part, as names with totals, and the part of each tree.

    Without such a part the path is empty and the trees are whole.
    """
    if focus is None:
        return [], list(trees)
    paths = [path_to(tree.nodes(), focus) for tree in trees]
    if not any(paths):
        return [], list(trees)
    parts = [subtree(tree, path[-1]) if path else FlameTree() for tree, path in zip(trees, paths, strict=True)]
    longest = max(paths, key=len)
    names = _names(trees[paths.index(longest)], longest)
    totals = [
        [int(tree.nodes().totals[path[depth]]) if path else 0 for tree, path in zip(trees, paths, strict=True)]
        for depth in range(len(longest))
    ]
    return [{"name": name, "totals": each} for name, each in zip(names, totals, strict=True)], parts


def _names(tree: FlameTree, path: Sequence[int]) -> list[str]:
    nodes = tree.nodes()
    return [nodes.names[nodes.name_refs[node]].decode("utf-8", "replace") for node in path]


def _stored_name(trees: Trees, function: str) -> bytes:
    """Return the bytes of a displayed name, in which invalid UTF-8 was replaced."""
    name = function.encode("utf-8", "replace")
    known = [tree.nodes().names for tree in trees]
    if any(name in names for names in known):
        return name
    return next((one for names in known for one in names if one.decode("utf-8", "replace") == function), name)
