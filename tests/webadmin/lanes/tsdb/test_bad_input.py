"""Each kind of damage from the bucket to the neighbours: found, kept out with its reason, the rest merged, nothing of
it touched.

The metadata of a block is checked by the scan, which does not index a bad one; its contents, by its readers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from engine.core.errors import LithifyError
from engine.formats.prometheus.index import index_reader, symbol_table
from engine.lanes.tsdb.buckets.marks import read_mark
from engine.lanes.tsdb.buckets.model import MarkKind
from engine.storage import ObjectStore
from tasks.batches import failure_reason
from tests.engine.lanes.tsdb import factories
from tests.engine.lanes.tsdb.factories import POSTINGS, SERIES, index_bytes, series_body
from tests.webadmin.lanes.tsdb.fake_bucket import (
    HOUR_MS,
    block_id,
    damage,
    origins,
    put_block,
    put_sound_block,
    visible,
)
from tests.webadmin.lanes.tsdb.test_real_merges import RealNode
from tests.webadmin.service import Service
from webadmin.lanes.tsdb.explain import explain_blocks
from webadmin.lanes.tsdb.models import BlockQuarantine, Bucket, Folder
from webadmin.lanes.tsdb.policies import layout_of
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.services.isolate_sources import isolate_sources
from webadmin.schedule.models import Limits

SOUND, BAD, ALSO_SOUND, LATER = (block_id(number) for number in range(4))
FOLDER = "acme/"
INDEX, CHUNKS, META = "index", "chunks/000001", "meta.json"
LONG = 4096
"""What the labels of a series may have in these tests."""
USUAL, SECOND = SERIES


@pytest.fixture
def node(service: Service, store: ObjectStore, tmp_path: Path) -> RealNode:
    return RealNode(service.worker(), store, tmp_path / "scratch")


def index(**parts: Any) -> dict[str, bytes]:
    return {INDEX: index_bytes(**parts)}


def lists_of(*bodies: bytes) -> dict[str, bytes]:
    return index(series=bodies, label_indices=())


def value(size: int) -> dict[str, bytes]:
    """A label value of so many bytes, under both names that there are."""
    symbols = (b"", b"a", b"b", b"x", b"y" * size)
    series = (series_body([1, 3], [(1000, 1030, 8), (1040, 1040, 40)]), series_body([1, 4, 2, 4], [(1000, 1030, 60)]))
    lists = (*POSTINGS[:2], (b"a", b"y" * size, (1,)), (b"b", b"y" * size, (1,)))
    return index(symbols=symbols, series=series, postings=lists, label_indices=())


def bomb() -> dict[str, bytes]:
    """A long value under six names of one series, and no lists of postings."""
    symbols = (b"", *(b"%c" % name for name in b"abcdef"), b"x", b"y" * 600)
    labels = [ref for name in range(1, 7) for ref in (name, 8)]
    series = (series_body([1, 7], [(1000, 1030, 8), (1040, 1040, 40)]), series_body(labels, [(1000, 1030, 60)]))
    return index(symbols=symbols, series=series, postings=(), label_indices=())


FLIPPED: dict[str, tuple[str, int]] = {"a corrupt index": (INDEX, 36), "a corrupt chunk": (CHUNKS, 12)}
FILES: dict[str, tuple[dict[str, bytes], str]] = {
    "series out of order": (lists_of(SECOND, USUAL), INDEX),
    "labels out of order": (lists_of(USUAL, series_body([2, 3, 1, 4], [(1000, 1030, 60)])), INDEX),
    "a label twice": (lists_of(USUAL, series_body([1, 3, 1, 4], [(1000, 1030, 60)])), INDEX),
    "a huge label value": (value(2 * LONG), INDEX),
    "a value that is huge under two names": (value(LONG * 2 // 3), INDEX),
    "a symbol bomb": (bomb(), INDEX),
    "a chunk that lies elsewhere": (lists_of(series_body([1, 3], [(1000, 1030, 5000)]), SECOND), CHUNKS),
}
TOLD: dict[str, tuple[dict[str, object], str]] = {
    "a time that lies": ({"maxTime": 1020}, CHUNKS),
    "statistics that lie": ({"stats": {"numSamples": 9, "numSeries": 3, "numChunks": 3, "numTombstones": 1}}, META),
    "samples that lie": ({"stats": {"numSamples": 8, "numSeries": 2, "numChunks": 3, "numTombstones": 1}}, META),
}
NOT_TAKEN_IN: dict[str, dict[str, object]] = {
    "another version": {"version": 2},
    "the id of another block": {"ulid": SOUND},
    "times that cannot be": {"minTime": 7, "maxTime": 7},
}
KINDS = [*FLIPPED, *FILES, *TOLD, *NOT_TAKEN_IN, "a missing index", "a missing chunk file"]


def put_bad(store: ObjectStore, kind: str) -> str:
    """Put the bad block; return the file that is wrong, "" if the block is not indexed."""
    put_sound_block(store, FOLDER, BAD)
    base = f"{FOLDER}{BAD}/"
    if kind in FLIPPED:
        file, offset = FLIPPED[kind]
        damage(store, f"{base}{file}", offset)
        return file
    if kind in FILES:
        changes, file = FILES[kind]
        for name, data in changes.items():
            store.put(f"{base}{name}", data)
        return file
    if kind.startswith("a missing"):
        file = INDEX if "index" in kind else CHUNKS
        store.delete(f"{base}{file}")
        return "" if file == INDEX else CHUNKS
    told, file = TOLD.get(kind) or (NOT_TAKEN_IN[kind], "")
    document = factories.meta_document(ulid=BAD, minTime=0, maxTime=2 * HOUR_MS)
    document |= {"compaction": {"level": 1, "sources": [BAD]}} | told
    store.put(f"{base}{META}", json.dumps(document).encode())
    return file


def objects(store: ObjectStore) -> dict[str, bytes]:
    found = [info.key for info in store.list(f"{FOLDER}{BAD}/")]
    return {key: store.get(key) for key in found if not key.endswith("no-compact-mark.json")}


def run(store: ObjectStore, node: RealNode) -> None:
    """Do what control tasks and a node do, failures too, until nothing happens any more."""
    for _ in range(8):
        rounds.scan_buckets(lambda url: store)
        rounds.plan_due(lambda url: store)
        specs = node.take(4)
        for spec in specs:
            try:
                update = node.success(spec)
            except LithifyError as error:
                update = node.failed(spec, failure_reason(error))
            node.worker.poll(update, capacity=0)
        found = isolate_sources(lambda url: store)
        written = rounds.write_outboxes(lambda url: store).written
        if not (specs or found.quarantined or written):
            return
    raise AssertionError("no fix-point")


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_block_is_kept_out_with_its_reason_and_the_others_are_merged(
    bucket: Bucket, store: ObjectStore, node: RealNode, kind: str
) -> None:
    Limits.objects.update(failures_max=1)
    Bucket.objects.update(ranges="2h")
    for ulid in (SOUND, ALSO_SOUND):
        put_sound_block(store, FOLDER, ulid)
    put_block(store, FOLDER, LATER, 4 * HOUR_MS, 6 * HOUR_MS)
    file = put_bad(store, kind)
    before = objects(store)
    with (
        mock.patch.object(symbol_table, "LABEL_BYTES_MAX", LONG),
        mock.patch.object(index_reader, "LABEL_BYTES_MAX", LONG),
    ):
        run(store, node)
    assert objects(store) == before
    left = visible(store, FOLDER) - {BAD, LATER}
    assert len(left) == 1
    assert origins(store, FOLDER, left) == {SOUND, ALSO_SOUND}
    if not file:
        assert [bad["ulid"] for bad in Folder.objects.get().examined["bad"]] == [BAD]
        assert not BlockQuarantine.objects.exists()
        return
    held = BlockQuarantine.objects.get()
    assert (held.block.ulid, held.file) == (BAD, file)
    mark = read_mark(store, layout_of(bucket), FOLDER, BAD, MarkKind.NO_COMPACT)
    assert mark is not None
    assert held.error_class in mark.details
    [told] = explain_blocks(BAD)
    assert told.state == "quarantined"
    assert file in told.why
