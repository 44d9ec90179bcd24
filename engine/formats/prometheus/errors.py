"""What reading and writing Prometheus blocks raises, beyond the errors of every object.

All of them are ``BadObject``: ``section`` is the file inside the block ("index", "chunks/000001", "tombstones",
"meta.json"), ``offset`` the byte position in that file, ``object_name`` the block.
"""

from __future__ import annotations

from engine.core.errors import BadObject


class OutOfOrder(BadObject):
    """Series, labels, chunks or samples do not ascend where the format says they do; they are never silently sorted."""

    code = "out_of_order"


class Inconsistent(BadObject):
    """Two parts of a block, each sound by itself, contradict each other."""

    code = "inconsistent_block"


class OnlyCopied(BadObject):
    """A chunk of an encoding that is carried as it is overlaps another one, or samples are deleted from it."""

    code = "only_copied"


def relocated(error: BadObject, section: str, offset: int) -> BadObject:
    """Return an error found in part of a file, named by that file; ``offset`` is where the part starts in it."""
    return type(error)(section, offset + max(error.offset, 0), error.reason, error.object_name)
