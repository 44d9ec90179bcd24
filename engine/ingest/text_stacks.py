"""Parse stacks as text or as a pre-order tree (folded lines, plain lines, tries, trees) to counts per stack.

Formats: ``docs/reference/formats/profile-api.md``, "Formats". A stack is a tuple of frames, root first, as raw bytes.
Counts of equal stacks are summed; negative counts and sums above 63 bits are rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from engine.core.binary import ByteReader
from engine.core.errors import BadObject
from engine.ingest.model import Refused

Stack = tuple[bytes, ...]
StackCounts = dict[Stack, int]
Path = TypeVar("Path")

INT64_MAX = (1 << 63) - 1
LINE_BYTES_MAX = 64 << 10
DEPTH_MAX = 10_000
"""Maximum nesting of a trie or tree."""
STACK_BYTES_MAX = 1 << 20
"""Maximum bytes of a stack; nodes of a trie repeat their prefix."""
TOTAL_BYTES_MAX = 64 << 20
"""Maximum bytes of all stacks of a trie or tree."""
REASON = "malformed_profile"


def parse_folded(data: bytes) -> StackCounts:
    """Parse ``frame;frame;… count`` lines, split at the last space; lines without a count are skipped.

    Raises Refused if a count is not a decimal integer in 0 … 2**63 - 1, or a line is longer than 64 KiB.
    """
    counts: StackCounts = {}
    for number, line in _lines(data):
        text, space, count = line.rpartition(b" ")
        if not space:
            continue
        _add(counts, _frames(text), _count(count, number))
    return counts


def parse_lines(data: bytes) -> StackCounts:
    """Parse one stack per line, each counting 1. Refused if a line is longer than 64 KiB."""
    counts: StackCounts = {}
    for _, line in _lines(data):
        _add(counts, _frames(line), 1)
    return counts


def parse_trie(data: bytes) -> StackCounts:
    """Parse a pre-order trie, whose nodes hold fragments of folded stacks. Refused if it is not one."""
    counts: StackCounts = {}

    def visit(prefix: bytes, fragment: bytes, value: int, depth: int) -> bytes:
        text = prefix + fragment
        if value:
            _add(counts, _frames(text), value)
        return text

    _walk(data, "trie", visit, b"", len)
    return counts


def parse_tree(data: bytes, *, name_bytes_max: int, children_max: int) -> StackCounts:
    """Parse a pre-order tree, whose nodes are frames with self values below a nameless root.

    Refused if it is not one, or a name or the children of a node are beyond the limits.
    """
    counts: StackCounts = {}

    def visit(path: Stack, name: bytes, value: int, depth: int) -> Stack:
        own = (*path, name) if depth else path
        if value and own:
            _add(counts, own, value)
        return own

    root: Stack = ()
    _walk(data, "tree", visit, root, _path_bytes, name_bytes_max=name_bytes_max, children_max=children_max)
    return counts


def _path_bytes(path: Stack) -> int:
    return sum(map(len, path)) + 8 * len(path)


def _walk(
    data: bytes,
    section: str,
    visit: Callable[[Path, bytes, int, int], Path],
    root: Path,
    size_of: Callable[[Path], int],
    *,
    name_bytes_max: int = STACK_BYTES_MAX,
    children_max: int = INT64_MAX,
) -> None:
    """Visit every node with the result of its parent's visit; iterative, without recursion."""
    reader = ByteReader(data, section)
    waiting: list[tuple[Path, int, int]] = [(root, 1, 0)]
    total = 0
    try:
        while waiting:
            parent, left, depth = waiting.pop()
            if left > 1:
                waiting.append((parent, left - 1, depth))
            name = _name(reader, name_bytes_max)
            value, children = reader.uvarint(), reader.uvarint()
            _check(children <= min(children_max, len(data)), f"{children} children of one node exceeds maximum")
            _check(value <= INT64_MAX, "a value leaves 63 bits")
            own = visit(parent, name, value, depth)
            total += size_of(own)
            _check(size_of(own) <= STACK_BYTES_MAX, "a stack's names exceed maximum")
            _check(total <= TOTAL_BYTES_MAX, "the stacks' names together exceed maximum")
            if children:
                _check(depth < DEPTH_MAX, f"the depth exceeds maximum {DEPTH_MAX}")
                waiting.append((own, children, depth + 1))
    except BadObject as error:
        raise Refused(REASON, str(error)) from error


def _name(reader: ByteReader, bytes_max: int) -> bytes:
    length = reader.uvarint()
    _check(length <= bytes_max, f"a name of {length} bytes exceeds maximum {bytes_max}")
    return reader.take(length)


def _check(holds: bool, reason: str) -> None:
    if not holds:
        raise Refused(REASON, reason)


def _lines(data: bytes) -> list[tuple[int, bytes]]:
    """Return the non-empty lines with their numbers; ``\\r\\n`` ends one as ``\\n`` does."""
    found = []
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        _check(len(line) <= LINE_BYTES_MAX, f"line {number} is longer than {LINE_BYTES_MAX} bytes")
        if line:
            found.append((number, line))
    return found


def _frames(text: bytes) -> Stack:
    """Split a folded stack; one ``;`` at the end is ignored, an empty part is a frame without a name."""
    return tuple(text.removesuffix(b";").split(b";"))


def _count(text: bytes, line: int) -> int:
    digits = text[1:] if text[:1] in b"+-" and text else text
    # int() would take underscores, spaces and other scripts' digits too.
    _check(digits.isdigit() and len(digits) <= 20, f"line {line}: {text[:40]!r} is not a count")
    count = int(text)
    _check(0 <= count <= INT64_MAX, f"line {line}: the count {count} is not between 0 and 2**63 - 1")
    return count


def _add(counts: StackCounts, stack: Stack, count: int) -> None:
    total = counts.get(stack, 0) + count
    _check(total <= INT64_MAX, "the counts of a stack sum to more than 63 bits")
    counts[stack] = total
