"""Number of nodes in a flame graph. Source: profile API format sheet, section 5.4."""

from __future__ import annotations

from engine.query.errors import InvalidQuestion

DEFAULT_NODES = 8_192
NODES_MAX = 1 << 20


def shown_nodes_of(wanted: int, *, default: int = DEFAULT_NODES, most: int = NODES_MAX) -> int:
    """Return the node limit of a request: 0 gives ``default``, a negative number all nodes.

    ``most`` is the maximum, 0 for none. Raises InvalidQuestion.
    """
    nodes = wanted or default
    if most and nodes > most:
        raise InvalidQuestion(f"max nodes limit {most} exceeded by {nodes}")
    if most and nodes < 0:
        raise InvalidQuestion(f"max nodes must be 1 to {most}, not {nodes}")
    return nodes
