"""Puts blocks, marks and rubbish into a bucket of either layout, the way other systems leave them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from engine.core import ulids
from engine.lanes.tsdb.buckets.layout import META, block_key, layout
from engine.lanes.tsdb.buckets.marks import encode_mark
from engine.lanes.tsdb.buckets.model import FolderScan, KnownFolder, Mark, MarkKind
from engine.lanes.tsdb.buckets.scan import scan_folder
from engine.storage import ObjectStore

TENANT = "tenant-1"
FILES = {
    "chunks/000001": b"chunks of this block",
    "chunks/000002": b"more of them",
    "index": b"the index of this block",
}


def ulid_of(number: int) -> str:
    """Return the id of the test's block of this number."""
    return ulids.make(1_700_000_000_000 + number, number.to_bytes(10, "big"))


def meta_document(ulid: str, /, **changes: object) -> dict[str, Any]:
    """Return the meta.json of a block as a sidecar uploads it."""
    files = [{"rel_path": name, "size_bytes": len(data)} for name, data in sorted(FILES.items())]
    return {
        "ulid": ulid,
        "minTime": 0,
        "maxTime": 7_200_000,
        "stats": {"numSamples": 10, "numSeries": 2, "numChunks": 2},
        "compaction": {"level": 1, "sources": [ulid]},
        "version": 1,
        "thanos": {
            "version": 1,
            "labels": {"cluster": "eu", "replica": "a"},
            "downsample": {"resolution": 0},
            "source": "sidecar",
            "files": [*files, {"rel_path": "meta.json"}],
            "index_stats": {"series_max_size": 96, "chunk_max_size": 40},
        },
    } | changes


class Bucket:
    """A bucket with one folder that the tests fill."""

    def __init__(self, store: ObjectStore, layout_name: str) -> None:
        self.store = store
        self.layout = layout(layout_name)
        self.folder = "" if layout_name == "thanos" else f"{TENANT}/"

    def put_files(self, ulid: str) -> None:
        """Upload a block but its meta.json."""
        for name, data in FILES.items():
            self.store.put(block_key(self.folder, ulid, name), data)

    def put_meta(self, ulid: str, /, data: bytes | None = None, **changes: object) -> None:
        """Upload a meta.json, sound by default."""
        sound = json.dumps(meta_document(ulid, **changes)).encode()
        self.store.put(block_key(self.folder, ulid, META), sound if data is None else data)

    def put_block(self, number: int) -> str:
        """Upload a sound block and return its id."""
        ulid = ulid_of(number)
        self.put_files(ulid)
        self.put_meta(ulid)
        return ulid

    def put_mark(self, ulid: str, kind: MarkKind, time_s: int = 1_700_000_000, data: bytes | None = None) -> None:
        """Mark a block, in every place the layout has for it."""
        reason = "manual" if kind is MarkKind.NO_COMPACT else ""
        mark = Mark(ulid=ulid, kind=kind, time_s=time_s, reason=reason, details="by hand")
        for key in self.layout.mark_keys(self.folder, ulid, kind):
            self.store.put(key, encode_mark(mark) if data is None else data)

    def scan(self, known: KnownFolder | None = None, *, deep: bool = False) -> FolderScan:
        """Scan the folder."""
        return scan_folder(self.store, self.layout, self.folder, known, deep=deep)

    def contents(self) -> dict[str, bytes]:
        """Return every object."""
        return {info.key: self.store.get(info.key) for info in self.store.list()}


def essence(known: KnownFolder) -> tuple[object, ...]:
    """Return what two scans of the same bucket must agree in, whatever the state of each was before."""
    marks = {key: replace(mark, modified_at_s=0.0, is_global=False) for key, mark in known.marks.items()}
    return known.complete, known.partial, known.bad, marks
