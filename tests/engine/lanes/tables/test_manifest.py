"""The manifest and its pointer: what is written comes back, the pointer never goes back, damage is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.errors import BadObject
from engine.lanes.tables.plain.manifest import (
    POINTER,
    Manifest,
    ManifestExists,
    ManifestFile,
    Pointer,
    decode_manifest,
    encode_manifest,
    manifest_key,
    read_manifest,
    read_pointer,
    write_manifest,
)
from engine.storage import ObjectStore, open_store

FILE = ManifestFile(
    path="dt=2024-02-01/día.parquet",
    size=7,
    rows=2,
    start_ms=0,
    end_ms=86_400_000,
    min_time_ms=1,
    max_time_ms=2,
    version="2024-02-01T00:00:00.000Z",
)
MANIFEST = Manifest(
    sequence=3,
    time_column="at",
    columns=(("at", "timestamp[us, tz=UTC]"), ("name", "string")),
    files=(FILE, replace(FILE, path="b.parquet", min_time_ms=None, max_time_ms=None)),
)


def bytes_of(manifest: Manifest) -> bytes:
    return encode_manifest(manifest, manifest.files).data


def write(store: ObjectStore, manifest: Manifest) -> Pointer:
    return write_manifest(store, encode_manifest(manifest, manifest.files))


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


def test_a_table_without_a_pointer_has_no_manifest(store: ObjectStore) -> None:
    assert read_manifest(store) is None


def test_what_is_written_counts(store: ObjectStore) -> None:
    pointer = write(store, MANIFEST)
    assert read_manifest(store) == MANIFEST
    assert pointer == read_pointer(store)
    assert pointer.manifest == "_lithify/manifests/000000000003.json"


def test_a_manifest_has_counts_of_files_bytes_and_rows() -> None:
    encoded = encode_manifest(replace(MANIFEST, files=()), iter(MANIFEST.files))
    assert decode_manifest(encoded.data) == MANIFEST
    assert (encoded.file_count, encoded.byte_count, encoded.row_count) == (2, 14, 4)


def test_a_pointer_goes_forward_only_and_the_same_again_changes_nothing(store: ObjectStore) -> None:
    write(store, MANIFEST)
    before = {info.key: info.modified_at for info in store.list()}
    assert write(store, MANIFEST).sequence == 3
    assert write(store, replace(MANIFEST, sequence=2)).sequence == 3
    assert {info.key: info.modified_at for info in store.list()} == before
    write(store, replace(MANIFEST, sequence=4, files=()))
    assert read_manifest(store) == replace(MANIFEST, sequence=4, files=())


def test_a_manifest_is_never_put_over_one_with_other_content(store: ObjectStore) -> None:
    mine = write(store, MANIFEST)
    other = replace(MANIFEST, files=())
    assert write(store, other) == mine
    assert read_manifest(store) == MANIFEST
    store.put(manifest_key(4), bytes_of(replace(MANIFEST, sequence=4)))
    with pytest.raises(ManifestExists):
        write(store, replace(other, sequence=4))
    assert read_manifest(store) == MANIFEST
    assert write(store, replace(MANIFEST, sequence=4)).sequence == 4, "the same content was written before"


def test_a_manifest_without_its_pointer_does_not_count_yet(store: ObjectStore) -> None:
    write(store, MANIFEST)
    store.put(manifest_key(4), bytes_of(replace(MANIFEST, sequence=4)))
    assert read_manifest(store) == MANIFEST


def test_a_reader_that_meets_a_manifest_just_deleted_reads_the_next(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, MANIFEST)
    stale = store.get(POINTER)
    write(store, replace(MANIFEST, sequence=4))
    store.delete(manifest_key(3))
    real, told = store.get, [stale]
    monkeypatch.setattr(store, "get", lambda key: told.pop() if key == POINTER and told else real(key))
    manifest = read_manifest(store)
    assert manifest is not None
    assert manifest.sequence == 4


@pytest.mark.parametrize(
    ("key", "data", "section"),
    [
        (POINTER, b"", "pointer"),
        (POINTER, b"[]", "pointer"),
        (POINTER, b'{"format":2}', "pointer"),
        (POINTER, b'{"format":1,"sequence":3}', "pointer"),
        (POINTER, b'{"format":1,"sequence":3,"manifest":"../x","sha256":""}', "pointer"),
        (POINTER, b'{"format":1,"sequence":3,"manifest":"other.json","sha256":""}', "pointer"),
        (manifest_key(3), bytes_of(MANIFEST)[:-1], "manifest"),
    ],
)
def test_damage_is_named(store: ObjectStore, key: str, data: bytes, section: str) -> None:
    write(store, MANIFEST)
    store.put(key, data)
    with pytest.raises(BadObject) as caught:
        read_manifest(store)
    assert (caught.value.object_name, caught.value.section) == (key, section)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"format": 9}, "format"),
        ({"sequence": -1}, "sequence"),
        ({"time_column": ""}, "time_column"),
        ({"columns": [{"name": "a"}]}, "columns[0].type"),
        ({"files": [{}]}, "files[0]"),
        ({"files": [{"path": "/a"}]}, "files[0]"),
    ],
)
def test_a_manifest_of_anything_else_is_refused_by_field(change: dict[str, object], field: str) -> None:
    told = json.loads(bytes_of(MANIFEST)) | change
    with pytest.raises(BadObject) as caught:
        decode_manifest(json.dumps(told).encode(), "there.json")
    assert field in str(caught.value)
    assert caught.value.object_name == "there.json"


def test_brackets_without_end_are_refused() -> None:
    with pytest.raises(BadObject):
        decode_manifest(b"[" * 200_000)
