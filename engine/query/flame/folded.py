"""Folded stacks: one line per stack with its frames, root first, and its value."""

from __future__ import annotations

from collections.abc import Iterator

from engine.core.errors import LimitExceeded
from engine.query.flame.tree import FlameTree

BYTES_MAX = 256 << 20
"""Maximum size of an export; lines repeat their callers, so the text can be much larger than the tree."""

NO_FRAMES = "(no frames)"
"""Text of the empty stack, which the format cannot express."""

_SEPARATORS = str.maketrans({";": ":", "\n": " ", "\r": " "})


def folded_lines(tree: FlameTree, *, bytes_max: int = BYTES_MAX) -> Iterator[str]:
    """Yield ``root;caller;function value`` of every stack with an own value, callers first, then by name.

    What would end a frame or a line inside a name is replaced (``;`` by ``:``, line ends by spaces). Raises
    LimitExceeded when the lines have more than ``bytes_max`` characters with their line ends.
    """
    nodes = tree.nodes()
    names = [name.decode("utf-8", "replace").translate(_SEPARATORS) for name in nodes.names]
    refs, own, starts = nodes.name_refs.tolist(), nodes.own.tolist(), nodes.child_starts.tolist()
    left = bytes_max
    path: list[str] = []
    waiting = [(0, 0)]
    while waiting:
        node, depth = waiting.pop()
        del path[max(0, depth - 1) :]
        if depth:
            path.append(names[refs[node]])
        if own[node]:
            line = f"{';'.join(path) if path else NO_FRAMES} {own[node]}"
            left -= len(line) + 1
            if left < 0:
                raise LimitExceeded("profiles", -1, f"the folded stacks have more than {bytes_max} characters")
            yield line
        waiting.extend((child, depth + 1) for child in range(starts[node + 1] - 1, starts[node] - 1, -1))
