"""A source that is not sound: an error that names block, file and offset, twin and compiled, and nothing is left."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine.core.errors import (
    BadObject,
    BadReference,
    ChecksumMismatch,
    LimitExceeded,
    Truncated,
    UnknownFormat,
)
from engine.formats.prometheus.errors import Inconsistent, OnlyCopied, OutOfOrder
from engine.lanes.tsdb.merge.merge import MergeRules, merge_blocks
from tests.engine.formats.profile_block.damage import flips, truncations
from tests.engine.lanes.tsdb import factories
from tests.engine.lanes.tsdb.factories import (
    SERIES,
    block_files,
    chunk_file,
    index_bytes,
    meta_document,
    record,
    series_body,
    write_block,
    xor_chunk,
)
from tests.engine.lanes.tsdb.small_blocks import BUDGET_BYTES, file_bytes, ulid

pytestmark = pytest.mark.usefixtures("each_series_merge")
RESULT = ulid(7)
INSIDE = -2
NOTHING_DELETED = {"tombstones": factories.tombstones_bytes()}


def sources(root: Path, changes: dict[str, bytes]) -> list[Path]:
    """A sound block and one that was changed; their samples overlap and differ, so that all chunks are decoded."""
    sound = write_block(root / "sources", block_files() | {"chunks/000001": shifted_chunks()} | sound_index())
    shutil.rmtree(root / "sources" / ulid(1), ignore_errors=True)
    other = sound.rename(root / "sources" / ulid(1))
    (other / "meta.json").write_text(json.dumps(meta_document(ulid=ulid(1))))
    return [write_block(root / "sources", block_files() | NOTHING_DELETED | changes), other]


def sound_index() -> dict[str, bytes]:
    """An index whose chunks begin 5 ms later than usual."""
    series = (series_body([1, 3], [(1005, 1035, 8), (1045, 1045, 40)]), series_body([1, 4, 2, 3], [(1005, 1035, 60)]))
    return {"index": index_bytes(series=series)} | NOTHING_DELETED


def shifted_chunks() -> bytes:
    out = bytearray(bytes.fromhex("85bd40dd01000000"))
    for place, start, count in ((8, 1005, 4), (40, 1045, 1), (60, 1005, 4)):
        out += bytes(place - len(out)) + record(1, xor_chunk(start, count))
    return bytes(out)


def merge(root: Path, changes: dict[str, bytes]) -> dict[str, bytes]:
    folders = sources(root, changes)
    shutil.rmtree(root / "out", ignore_errors=True)
    merge_blocks(folders, root / "out", RESULT, rules=MergeRules(), budget_bytes=BUDGET_BYTES)
    return file_bytes(root / "out")


def chunks_with(sealed: bytes) -> bytes:
    """The usual chunk file with another first record."""
    out = bytes.fromhex("85bd40dd01000000") + sealed
    assert len(out) <= 40
    return out + bytes(40 - len(out)) + chunk_file()[40:]


def xor_times(*steps: int) -> bytes:
    """A chunk of equal values from 1000 on, with a code of 14 bits for each change of the step."""
    one = f"{0x3FF0000000000000:064b}"
    bits = one + f"{steps[0]:08b}0" + "".join(f"10{change & 0x3FFF:014b}0" for change in steps[1:])
    return (len(steps) + 1).to_bytes(2, "big") + factories.svarint(1000) + factories.packed(bits)


def index_of(*series: bytes) -> dict[str, bytes]:
    return {"index": index_bytes(series=series, postings=(), label_indices=())}


FIRST, SECOND = SERIES
CASES: dict[str, tuple[dict[str, bytes], type[BadObject], str, int]] = {
    "a record's checksum": (
        {"chunks/000001": chunk_file()[:20] + b"\xff" + chunk_file()[21:]},
        ChecksumMismatch,
        "chunks/000001",
        9,
    ),
    "an unknown encoding": (
        {"chunks/000001": chunks_with(record(7, xor_chunk(1000, 4)))},
        UnknownFormat,
        "chunks/000001",
        9,
    ),
    "no samples": ({"chunks/000001": chunks_with(record(1, bytes(2)))}, BadObject, "chunks/000001", 9),
    "no room for a count": ({"chunks/000001": chunks_with(record(1, b"\x01"))}, BadObject, "chunks/000001", 9),
    "a length beyond the file": ({"chunks/000001": chunks_with(b"\xff\x7f")}, Truncated, "chunks/000001", 8),
    "a huge length": ({"chunks/000001": chunks_with(b"\xff" * 5 + b"\x01")}, LimitExceeded, "chunks/000001", 8),
    "a length that does not end": ({"chunks/000001": chunks_with(b"\xff" * 12)}, BadObject, "chunks/000001", 8),
    "more samples than bytes": (
        {"chunks/000001": chunks_with(record(1, b"\xff\xff" + xor_chunk(1000, 4)[2:]))},
        LimitExceeded,
        "chunks/000001",
        8,
    ),
    "a chunk cut short": (
        {"chunks/000001": chunks_with(record(1, (9).to_bytes(2, "big") + xor_chunk(1000, 4)[2:]))},
        Truncated,
        "chunks/000001",
        INSIDE,
    ),
    "times that are not the index's": (
        {"chunks/000001": chunks_with(record(1, xor_chunk(1001, 4)))},
        Inconsistent,
        "chunks/000001",
        8,
    ),
    "samples that do not ascend": (
        {"chunks/000001": chunks_with(record(1, xor_times(40, -50)))},
        OutOfOrder,
        "chunks/000001",
        8,
    ),
    "no such record": (index_of(series_body([1, 3], [(1000, 1030, 5000)])), BadReference, "chunks/000001", 5000),
    "no such file": (index_of(series_body([1, 3], [(1000, 1030, (3 << 32) + 8)])), BadReference, "chunks/000004", 8),
    "a chunk in the header": (index_of(series_body([1, 3], [(1000, 1030, 7)])), BadReference, "chunks/000001", 7),
    "chunks that share bytes": (
        index_of(series_body([1, 3], [(1000, 1030, 8), (1040, 1040, 8)])),
        OutOfOrder,
        "chunks/000001",
        8,
    ),
    "a chunk outside the block": (
        index_of(series_body([1, 3], [(900, 930, 8)])),
        Inconsistent,
        "chunks/000001",
        8,
    ),
    "overlapping chunks": (
        index_of(series_body([1, 3], [(1000, 1030, 8), (1030, 1040, 40)])),
        OutOfOrder,
        "index",
        INSIDE,
    ),
    "series that do not ascend": (index_of(SECOND, FIRST), OutOfOrder, "index", INSIDE),
    "a series twice": (index_of(FIRST, FIRST), OutOfOrder, "index", INSIDE),
    "labels that do not ascend": (index_of(series_body([2, 3, 1, 3], [])), OutOfOrder, "index", INSIDE),
    "a label twice": (index_of(series_body([1, 3, 1, 4], [])), OutOfOrder, "index", INSIDE),
    "no such symbol": (index_of(series_body([1, 99], [])), BadReference, "index", INSIDE),
    "times in meta.json": (
        {"meta.json": json.dumps(meta_document(maxTime=1020)).encode()},
        Inconsistent,
        "chunks/000001",
        8,
    ),
    "another ULID": ({"meta.json": json.dumps(meta_document(ulid=ulid(3))).encode()}, Inconsistent, "meta.json", -1),
    "a version": ({"meta.json": json.dumps(meta_document(version=2)).encode()}, UnknownFormat, "meta.json", -1),
}


@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_damage_is_named(tmp_path: Path, name: str) -> None:
    changes, kind, section, offset = CASES[name]
    with pytest.raises(BadObject) as refused:
        merge(tmp_path, changes)
    error = refused.value
    assert (type(error), error.object_name, error.section) == (kind, factories.ULID, section)
    assert error.offset == offset or (offset == INSIDE and error.offset > 0)
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("offset", [8, 9, 10, 13, 17, 20, 24, 40, 46, 60, 70])
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_one_bad_record_among_equal_replicas_is_named(tmp_path: Path, offset: int, damaged: int) -> None:
    data = bytearray(chunk_file())
    data[offset] ^= 1
    folders = []
    for number in range(3):
        changed = {"chunks/000001": bytes(data)} if number == damaged else {}
        folder = write_block(tmp_path / "made", block_files() | NOTHING_DELETED | changed)
        (tmp_path / "sources").mkdir(exist_ok=True)
        folders.append(folder.rename(tmp_path / "sources" / ulid(number)))
        (folders[-1] / "meta.json").write_text(json.dumps(meta_document(ulid=ulid(number))))
    with pytest.raises(BadObject) as refused:
        merge_blocks(folders, tmp_path / "out", RESULT, rules=MergeRules(), budget_bytes=BUDGET_BYTES)
    assert (refused.value.object_name, refused.value.section) == (ulid(damaged), "chunks/000001")


@pytest.mark.parametrize("missing", ["meta.json", "index", "chunks/000001"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    folders = sources(tmp_path, {})
    (folders[0] / missing).unlink()
    with pytest.raises(BadObject) as refused:
        merge_blocks(folders, tmp_path / "out", RESULT, rules=MergeRules(), budget_bytes=BUDGET_BYTES)
    assert (refused.value.object_name, refused.value.section) == (factories.ULID, missing)


def test_what_is_only_ever_copied_must_not_overlap(tmp_path: Path) -> None:
    opaque = {"chunks/000001": chunks_with(record(4, xor_chunk(1000, 4)))}
    with pytest.raises(OnlyCopied, match=f"{factories.ULID}: chunks/000001 at offset 8: .* encoding 4"):
        merge(tmp_path, opaque)
    with pytest.raises(OnlyCopied, match=f"{factories.ULID}: chunks/000001 at offset 8: .* deleted"):
        merge(tmp_path, opaque | {"tombstones": block_files()["tombstones"]})


def outcome(root: Path, changes: dict[str, bytes]) -> dict[str, bytes] | str:
    """Return what a merge wrote, or the name of the block that it refused."""
    try:
        return merge(root, changes)
    except BadObject as error:
        return error.object_name


# What a merge does not read: the parts of an index behind the series, but for the table of contents.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["chunks/000001", "index", "tombstones"])
def test_a_changed_byte_is_found_or_makes_no_difference(tmp_path: Path, name: str) -> None:
    answer = merge(tmp_path, {})
    data = block_files()[name]
    outcomes = [outcome(tmp_path, {name: damaged}) for _, damaged in flips(data)]
    assert all(found in (answer, factories.ULID) for found in outcomes)
    assert outcomes.count(factories.ULID) > len(outcomes) // 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chunks/000001", "index", "tombstones"])
def test_bytes_that_end_early_are_refused(tmp_path: Path, name: str) -> None:
    for damaged in truncations(block_files()[name]):
        assert outcome(tmp_path, {name: damaged}) == factories.ULID
