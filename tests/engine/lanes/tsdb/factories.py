"""Small blocks put together by hand, byte by byte, so that a test can lie in any place with right checksums."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.core.checksums import crc32c

ULID = "01M7XZJ8TS9MBSFE7YB3WA97CR"
MIN_TIME, MAX_TIME = 1000, 2000
TOMBSTONES_MAGIC = bytes.fromhex("0130ba30")


def packed(bits: str) -> bytes:
    """Return bits as bytes, zeros after the last."""
    bits = bits.replace(" ", "")
    bits += "0" * (-len(bits) % 8)
    return int("1" + bits, 2).to_bytes(len(bits) // 8 + 1, "big")[1:]


def uvarint(value: int) -> bytes:
    """Return a LEB128 number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def svarint(value: int) -> bytes:
    """Return a zigzag-coded number."""
    return uvarint((value << 1 ^ value >> 63) & ((1 << 64) - 1))


def sealed(body: bytes) -> bytes:
    """Return bytes with their checksum after them."""
    return body + crc32c(body).to_bytes(4, "big")


def u32(*values: int) -> bytes:
    """Return big-endian 32-bit numbers."""
    return b"".join(value.to_bytes(4, "big") for value in values)


def sized(body: bytes) -> bytes:
    """Return bytes with their length before and their checksum after them."""
    return u32(len(body)) + sealed(body)


def series_body(labels: Sequence[int], chunks: Sequence[tuple[int, int, int]]) -> bytes:
    """Return a series entry's body from alternating symbol numbers and (first time, last time, reference)."""
    parts = [uvarint(len(labels) // 2), *map(uvarint, labels), uvarint(len(chunks))]
    last_time = last_ref = 0
    for position, (start, end, ref) in enumerate(chunks):
        times = [uvarint((start - last_time) & (1 << 64) - 1) if position else svarint(start), uvarint(end - start)]
        parts += [*times, svarint(ref - last_ref) if position else uvarint(ref)]
        last_time, last_ref = end, ref
    return b"".join(parts)


SYMBOLS = (b"", b"a", b"b", b"x", b"y")
# a="x", and a="y" with b="x".
SERIES = (series_body([1, 3], [(1000, 1030, 8), (1040, 1040, 40)]), series_body([1, 4, 2, 3], [(1000, 1030, 60)]))
POSTINGS = ((b"", b"", (0, 1)), (b"a", b"x", (0,)), (b"a", b"y", (1,)), (b"b", b"x", (1,)))
LABEL_INDICES = ((b"a", (3, 4)), (b"b", (3,)))


def index_bytes(
    *,
    symbols: Sequence[bytes] = SYMBOLS,
    series: Iterable[bytes] = SERIES,
    postings: Iterable[tuple[bytes, bytes, Sequence[int]]] = POSTINGS,
    label_indices: Iterable[tuple[bytes, Sequence[int]]] = LABEL_INDICES,
) -> bytes:
    """Return an index; ``postings`` name series by their place in ``series``."""
    out = bytearray(bytes.fromhex("baaad70002"))
    places = [len(out)]
    out += sized(u32(len(symbols)) + b"".join(uvarint(len(symbol)) + symbol for symbol in symbols))
    places.append(len(out))
    ids = []
    for body in series:
        out += bytes(-len(out) % 16)
        ids.append(len(out) // 16)
        out += uvarint(len(body)) + sealed(body)
    places.append(len(out))
    label_table, postings_table = [], []
    for name, values in label_indices:
        out += bytes(-len(out) % 4)
        label_table.append(b"\x01" + uvarint(len(name)) + name + uvarint(len(out)))
        out += sized(u32(1, len(values), *values))
    places.append(len(out))
    for name, value, members in postings:
        out += bytes(-len(out) % 4)
        keys = b"".join(uvarint(len(text)) + text for text in (name, value))
        postings_table.append(b"\x02" + keys + uvarint(len(out)))
        out += sized(u32(len(members), *(ids[member] for member in members)))
    places.append(len(out))
    if label_table:
        out += sized(u32(len(label_table)) + b"".join(label_table))
    places.append(len(out))
    out += sized(u32(len(postings_table)) + b"".join(postings_table))
    symbols_at, series_at, label_indices_at, postings_at, label_table_at, postings_table_at = places
    order = (symbols_at, series_at, label_indices_at, label_table_at, postings_at, postings_table_at)
    return bytes(out) + sealed(b"".join(place.to_bytes(8, "big") for place in order))


def record(encoding: int, data: bytes) -> bytes:
    """Return a record of a chunk file."""
    return uvarint(len(data)) + sealed(bytes([encoding]) + data)


def xor_chunk(start: int, count: int) -> bytes:
    """Return a float chunk of equal values (1.0) with 10 ms between samples."""
    one = f"{0x3FF0000000000000:064b}"
    bits = one + (f"{10:08b}0" if count > 1 else "") + "00" * (count - 2)
    return count.to_bytes(2, "big") + svarint(start) + packed(bits)


def chunk_file() -> bytes:
    """Return a chunk file with the three chunks that the usual series refer to."""
    out = bytearray(bytes.fromhex("85bd40dd01000000"))
    for place, start, count in ((8, 1000, 4), (40, 1040, 1), (60, 1000, 4)):
        out += bytes(place - len(out)) + record(1, xor_chunk(start, count))
    return bytes(out)


def tombstones_bytes(*entries: tuple[int, int, int]) -> bytes:
    """Return a tombstones file of (series, first time, last time)."""
    body = b"".join(uvarint(series) + svarint(start) + svarint(end) for series, start, end in entries)
    return TOMBSTONES_MAGIC + b"\x01" + sealed(body)


def meta_document(**changes: object) -> dict[str, object]:
    """Return the meta.json of the usual block."""
    document: dict[str, object] = {
        "ulid": ULID,
        "minTime": MIN_TIME,
        "maxTime": MAX_TIME,
        "stats": {"numSamples": 9, "numSeries": 2, "numChunks": 3, "numTombstones": 1},
        "compaction": {"level": 1, "sources": [ULID]},
        "version": 1,
    }
    return document | changes


def block_files() -> dict[str, bytes]:
    """Return the files of a sound block: two series, three chunks, one tombstone."""
    index = index_bytes()
    first_id = -(-(5 + 4 + 4 + sum(1 + len(symbol) for symbol in SYMBOLS) + 4) // 16)
    return {
        "meta.json": json.dumps(meta_document()).encode(),
        "index": index,
        "chunks/000001": chunk_file(),
        "tombstones": tombstones_bytes((first_id, 1000, 1010)),
    }


def write_block(root: Path, files: dict[str, bytes]) -> Path:
    """Write a block's files into a folder of its name and return that."""
    folder = root / ULID
    (folder / "chunks").mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder
