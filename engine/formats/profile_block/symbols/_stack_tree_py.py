"""Codec of stack trees in pure Python: two group-varint numbers per node.

A node is (zigzag of its parent minus the parent of the previous node, location). Four numbers share a control byte,
whose 2-bit fields, lowest first, are their lengths in bytes minus one; the little-endian numbers follow.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.core.binary import ByteReader
from engine.core.errors import BadReference, LimitExceeded
from engine.formats.profile_block.model import StackTree

GROUP_BYTES_MIN = 5
"""Minimum size of a group of two nodes: a control byte and four numbers."""


def decode_tree(reader: ByteReader, node_count: int, location_count: int) -> StackTree:
    """Return a tree of exactly ``node_count`` nodes at the end of the reader; parents must precede their children."""
    start = reader.position
    if node_count < 1 or (node_count + 1) // 2 * GROUP_BYTES_MIN > reader.end - start:
        raise LimitExceeded(reader.section, start, f"{node_count} nodes do not fit in {reader.end - start} bytes")
    numbers = list(_read_groups(reader, (node_count + 1) // 2))
    reader.expect_end()
    parents, locations = [], numbers[1 : 2 * node_count : 2]
    parent = 0
    for node in range(node_count):
        step = numbers[2 * node]
        parent += step >> 1 ^ -(step & 1)
        if not (0 <= parent < node or (node == 0 and parent == -1)):
            raise BadReference(reader.section, start, f"node {node} of a stack tree has parent {parent}")
        parents.append(parent)
    if any(location >= location_count for location in locations[1:]):
        raise BadReference(reader.section, start, f"a stack tree refers to a location beyond {location_count}")
    return StackTree(parents=parents, locations=locations)


def _read_groups(reader: ByteReader, count: int) -> Iterator[int]:
    for _ in range(count):
        control = reader.u8()
        for shift in (0, 2, 4, 6):
            yield int.from_bytes(reader.take((control >> shift & 3) + 1), "little")


def encode_tree(tree: StackTree) -> bytes:
    """Return the encoded tree; with an odd number of nodes, two zeros follow the last one."""
    numbers = []
    previous = 0
    for parent, location in zip(tree.parents, tree.locations, strict=True):
        step = parent - previous
        numbers += [step << 1 if step >= 0 else (-step << 1) - 1, location]
        previous = parent
    numbers += [0] * (-len(numbers) % 4)
    return b"".join(_group(numbers[start : start + 4]) for start in range(0, len(numbers), 4))


def _group(numbers: list[int]) -> bytes:
    lengths = [max(1, (number.bit_length() + 7) // 8) for number in numbers]
    control = sum((length - 1) << (2 * i) for i, length in enumerate(lengths))
    body = b"".join(number.to_bytes(length, "little") for number, length in zip(numbers, lengths, strict=True))
    return bytes([control]) + body
