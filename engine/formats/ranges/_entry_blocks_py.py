"""Reference implementation of the codec and merge of blocks of entries in pure Python."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

import xxhash

from engine.core.binary import encode_uvarint
from engine.core.errors import BadObject
from engine.formats.ranges.errors import InvalidRecord, UnsortedKeys
from engine.formats.ranges.layout import BLOCK_BYTES, BlockSink, MergeCounts, SplitRules
from engine.formats.ranges.model import IDENTITY_BYTES_MAX, KEY_BYTES_MAX, PAYLOAD_BYTES_MAX, Interval, Row

SECTION = "block"


def decode_block(data: bytes) -> list[Row]:
    """Return the rows of a block. Raises BadObject with the section "block"."""
    return list(_rows_of(data))


def encode_rows(rows: Iterable[Row], sink: BlockSink, rules: SplitRules | None) -> int:
    """Write rows as blocks of one or more files (``rules`` None: one file) to the sink; return the number of rows.

    Raises UnsortedKeys if keys do not strictly ascend, InvalidRecord for an invalid row.
    """
    encoder = _Encoder(sink, rules)
    count, previous = 0, None
    for key, identity, payload in rows:
        if not 0 < len(key) <= KEY_BYTES_MAX or len(identity) > IDENTITY_BYTES_MAX:
            raise InvalidRecord(f"invalid sizes: a key of {len(key)} bytes, an identity of {len(identity)} bytes")
        if len(payload) > (PAYLOAD_BYTES_MAX if identity else 0):
            raise InvalidRecord(f"{key!r} has a payload of {len(payload)} bytes")
        if previous is not None and key <= previous:
            raise UnsortedKeys(f"{key!r} comes after {previous!r}")
        encoder.add(key, identity, payload)
        previous = key
        count += 1
    encoder.finish()
    return count


def merge_blocks(
    layers: Sequence[Iterator[bytes]],
    base: Iterator[bytes],
    hidden: Sequence[Sequence[Interval]],
    sink: BlockSink,
    rules: SplitRules,
    after: bytes | None,
    upto: bytes | None,
) -> MergeCounts:
    """Write the merge of the layers (newest first) over the base, for keys after ``after`` and up to ``upto``.

    For each key the newest row of a layer that is not hidden decides: a value is written (as the base's row if that has
    the same identity), a tombstone omits the key. Without such a row the base's row is written unless it is hidden.
    ``hidden`` are ascending intervals for each layer and, as the last item, for the base.
    """
    counts = MergeCounts()
    encoder = _Encoder(sink, rules)
    streams = [_stream(blocks, number, after, upto) for number, blocks in enumerate([*layers, base])]
    rows = heapq.merge(*streams)
    row = next(rows, None)
    while row is not None:
        key, winner, own = row[0], None, None
        while row is not None and row[0] == key:
            _, layer, identity, payload = row
            counts.rows_read += 1
            if layer == len(layers):
                own = (identity, payload)
            elif winner is None and not _is_in(key, hidden[layer]):
                winner = (identity, payload)
            row = next(rows, None)
        if winner is None and own and _is_in(key, hidden[-1]):
            winner = (b"", b"")
        _write_outcome(key, winner, own, encoder, counts)
    encoder.finish()
    return counts


def spread_rows(
    blocks: Iterable[bytes], firsts: Sequence[bytes], lasts: Sequence[bytes], border: int
) -> tuple[dict[int, tuple[int, int, int]], list[bytes]]:
    """Return the distribution of a layer's rows over ranges with these first and last keys, and the new borders.

    The first result maps slots to (rows, values among them, bytes); slot 2i+1 is range i, slot 2i the gap before it.
    The second result is the keys of values in gaps whose hash is divisible by ``border``.
    """
    spread: dict[int, tuple[int, int, int]] = {}
    borders = []
    at = 0
    for block in blocks:
        for key, identity, payload in _rows_of(block):
            while at < len(lasts) and lasts[at] < key:
                at += 1
            slot = 2 * at + (at < len(firsts) and firsts[at] <= key)
            rows, values, size = spread.get(slot, (0, 0, 0))
            added = len(key) + len(identity) + len(payload)
            spread[slot] = rows + 1, values + bool(identity), size + added
            if identity and not slot % 2 and xxhash.xxh64_intdigest(key) % border == 0:
                borders.append(key)
    return spread, borders


def _write_outcome(
    key: bytes,
    winner: tuple[bytes, bytes] | None,
    own: tuple[bytes, bytes] | None,
    encoder: _Encoder,
    counts: MergeCounts,
) -> None:
    """Write and count the outcome for a key, from the deciding row (``winner``) and the base's row (``own``)."""
    if winner is not None and not winner[0]:
        counts.removed += own is not None
        return
    if winner is None or (own is not None and winner[0] == own[0]):
        if own is not None:
            encoder.add(key, *own)
            counts.kept += 1
        return
    encoder.add(key, *winner)
    counts.added += own is None
    counts.changed += own is not None
    counts.bytes_changed += len(key) + len(winner[0]) + len(winner[1])


def _stream(
    blocks: Iterator[bytes], number: int, after: bytes | None, upto: bytes | None
) -> Iterator[tuple[bytes, int, bytes, bytes]]:
    """Yield the rows inside the bounds, with the number of their layer."""
    previous = b""
    for block in blocks:
        for key, identity, payload in _rows_of(block):
            if key <= previous:
                raise BadObject(SECTION, -1, "a key does not sort after the last one of the previous block")
            previous = key
            if upto is not None and key > upto:
                return
            if after is None or key > after:
                yield key, number, identity, payload


def _is_in(key: bytes, intervals: Sequence[Interval]) -> bool:
    return any(start <= key and (end is None or key < end) for start, end in intervals)


def _rows_of(data: bytes) -> Iterator[Row]:
    at, previous = 0, b""
    while at < len(data):
        begin = at
        shared, at = _uvarint(data, at)
        size, at = _uvarint(data, at)
        identity_size, at = _uvarint(data, at)
        payload_size, at = _uvarint(data, at) if identity_size else (0, at)
        if shared > len(previous) or not 0 < shared + size <= KEY_BYTES_MAX:
            raise BadObject(SECTION, begin, "the size of a key is invalid")
        if identity_size > IDENTITY_BYTES_MAX or payload_size > PAYLOAD_BYTES_MAX:
            raise BadObject(SECTION, begin, "the size of an identity or payload is invalid")
        if size + identity_size + payload_size > len(data) - at:
            raise BadObject(SECTION, begin, "the block ends inside a row")
        key = previous[:shared] + data[at : at + size]
        if key <= previous:
            raise BadObject(SECTION, begin, "keys do not ascend")
        at += size
        yield key, data[at : at + identity_size], data[at + identity_size : at + identity_size + payload_size]
        at += identity_size + payload_size
        previous = key


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise BadObject(SECTION, at, "the block ends inside a varint")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, at
    raise BadObject(SECTION, at, "a varint exceeds 64 bits")


class _Encoder:
    """Encodes rows as blocks and passes them to a sink, with the ends of files."""

    def __init__(self, sink: BlockSink, rules: SplitRules | None) -> None:
        self._sink, self._rules = sink, rules
        self._block = bytearray()
        self._count = self._block_bytes = self._file_bytes = 0
        self._first = self._last = b""

    def add(self, key: bytes, identity: bytes, payload: bytes) -> None:
        shared = 0
        if self._count:
            shared = next((i for i, (a, b) in enumerate(zip(key, self._last, strict=False)) if a != b), len(self._last))
        else:
            self._first = key
        self._block += encode_uvarint(shared) + encode_uvarint(len(key) - shared) + encode_uvarint(len(identity))
        if identity:
            self._block += encode_uvarint(len(payload))
        self._block += key[shared:] + identity + payload
        self._last = key
        self._count += 1
        self._block_bytes += len(key) + len(identity) + len(payload)
        if len(self._block) >= BLOCK_BYTES:
            self._flush()
        self._cut_behind(key)

    def finish(self) -> None:
        self._flush()
        if self._file_bytes:
            self._sink.cut()
            self._file_bytes = 0

    def _cut_behind(self, key: bytes) -> None:
        rules = self._rules
        if rules is None:
            return
        size = self._file_bytes + self._block_bytes
        hashed = xxhash.xxh64_intdigest(key)
        if (
            size >= rules.bytes_max
            or (size >= rules.bytes_min and hashed % rules.every == 0)
            or hashed % rules.border == 0
        ):
            self.finish()

    def _flush(self) -> None:
        if self._count:
            self._sink.block(bytes(self._block), self._count, self._block_bytes, self._first, self._last)
            self._file_bytes += self._block_bytes
            self._block.clear()
            self._count = self._block_bytes = 0
