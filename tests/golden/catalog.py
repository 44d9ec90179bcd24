"""Makes the golden files of the catalog: ``python -m tests.golden.catalog [FOLDER]`` (default: this folder)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from engine.formats.ranges.entry_blocks import encode_rows
from engine.formats.ranges.layout import Kind
from engine.formats.ranges.model import Row, key_of
from engine.formats.ranges.object_entry import ObjectEntry
from engine.formats.ranges.range_file import FileBuilder, FileInfo
from engine.lanes.catalog.files import metarange_of
from engine.lanes.catalog.runs import write_run

FOLDER = Path(__file__).parent
KEYS = ["a//b", "data/2026-01-01/part-0.parquet", "data/2026-01-01/part-1.parquet", "data/..", "ключ", "🔑\n"]
OBJECT = ObjectEntry(
    address="objects/0001",
    size=42,
    checksum="d41d8cd9",
    written_at=1.7e9,
    content_type="text/plain",
    metadata={"k": "v"},
)


def make() -> dict[str, bytes]:
    """Return the files by name."""
    rows: list[Row] = sorted((key_of(text), OBJECT.identity, OBJECT.to_payload()) for text in KEYS)
    ranges: list[tuple[FileInfo, bytes]] = []
    encode_rows(rows, FileBuilder(Kind.RANGE, lambda info, data: ranges.append((info, data))), None)
    metarange, data = metarange_of(info for info, _ in ranges)
    staged = bytearray()
    write_run(
        [(key, b"", b"") if number % 2 else (key, *value) for number, (key, *value) in enumerate(rows)], staged.extend
    )
    told = {
        "catalog-metarange.bin": metarange.id,
        "catalog-range.bin": ranges[0][0].id,
        "keys": [key.decode() for key, _, _ in rows],
    }
    return {
        "catalog-metarange.bin": data,
        "catalog-range.bin": ranges[0][1],
        "catalog-staged.bin": bytes(staged),
        "catalog.json": json.dumps(told, indent=2).encode() + b"\n",
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for name, data in make().items():
        (folder / name).write_bytes(data)
