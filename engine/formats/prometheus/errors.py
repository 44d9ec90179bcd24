"""Errors of Prometheus blocks, in addition to those of ``engine.core.errors``.

All are ``BadObject``: ``section`` is the file in the block ("index", "chunks/000001", "tombstones", "meta.json"),
``offset`` the byte position in that file, ``object_name`` the block.
"""

from __future__ import annotations

from engine.core.errors import BadObject


class OutOfOrder(BadObject):
    """Series, labels, chunks or samples do not ascend as the format requires; they are never sorted silently."""

    code = "out_of_order"


class Inconsistent(BadObject):
    """Two valid parts of a block contradict each other."""

    code = "inconsistent_block"


class OnlyCopied(BadObject):
    """A chunk of an encoding that is only copied overlaps another chunk, or has deleted samples."""

    code = "only_copied"


def relocated(error: BadObject, section: str, offset: int) -> BadObject:
    """Return an error of a part of a file with the file's name and absolute offset; the part starts at ``offset``."""
    return type(error)(section, offset + max(error.offset, 0), error.reason, error.object_name)
