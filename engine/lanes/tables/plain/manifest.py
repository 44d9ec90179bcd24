"""The manifest of a table: its current Parquet files, and the pointer object that readers start from.

``_lithify/manifests/<sequence>.json`` is immutable. ``_lithify/current.json``, the *pointer*, names the current
manifest and its checksum and is replaced atomically: a reader sees the table before or after a merge.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from engine.core.errors import BadObject, ChecksumMismatch, LithifyError, UnknownFormat
from engine.lanes.tables.results import COLUMNS_MAX, TIME_MAX, TIME_MIN, table_path
from engine.protocol.errors import InvalidMessage
from engine.protocol.fields import COUNT_MAX, Fields
from engine.storage import ObjectNotFound, ObjectStore

FOLDER = "_lithify"
POINTER = f"{FOLDER}/current.json"
MANIFESTS = f"{FOLDER}/manifests/"
FORMAT = 1
SEQUENCE_DIGITS = 12
SEQUENCE_MAX = 10**SEQUENCE_DIGITS - 1
FILES_MAX = 10_000_000
NAME_MAX = 4096
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
READ_ATTEMPTS = 5
"""Attempts of a reader whose manifest was deleted because a newer one replaced it."""


class ManifestExists(LithifyError):
    """There is a manifest of this sequence with other bytes, which is never overwritten: choose a later sequence."""

    code = "manifest_exists"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """A file of the table: its path below the table's URL, and the interval it was registered for, end exclusive.

    ``min_time_ms`` and ``max_time_ms`` bound its times, None if it has none. ``version`` decides among intervals.
    """

    path: str
    size: int
    rows: int
    start_ms: int
    end_ms: int
    min_time_ms: int | None
    max_time_ms: int | None
    version: str


_FILE_FIELDS = tuple(ManifestFile.__dataclass_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The table after its ``sequence``-th change; ``columns`` are names and Arrow type names, in order."""

    sequence: int
    time_column: str
    columns: tuple[tuple[str, str], ...]
    files: tuple[ManifestFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """The content of the pointer object: the current manifest, its key, and the SHA-256 of its bytes (hex)."""

    sequence: int
    manifest: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedManifest:
    """The encoded manifest and its totals; the files themselves are not held in memory."""

    sequence: int
    data: bytes
    file_count: int
    byte_count: int
    row_count: int


def manifest_key(sequence: int) -> str:
    """Return the path of a manifest below the table's URL."""
    return f"{MANIFESTS}{sequence:0{SEQUENCE_DIGITS}}.json"


def encode_manifest(head: Manifest, files: Iterable[ManifestFile]) -> EncodedManifest:
    """Return the encoded manifest of ``files``, consumed one by one, instead of ``head``'s own.

    Equal tables have equal bytes.
    """
    header = {
        "format": FORMAT,
        "sequence": head.sequence,
        "time_column": head.time_column,
        "columns": [{"name": name, "type": kind} for name, kind in head.columns],
        "files": [],
    }
    buffer = io.BytesIO()
    buffer.write(_JSON.encode(header).removesuffix("]}").encode())
    file_count = byte_count = row_count = 0
    for file in files:
        text = _JSON.encode({name: getattr(file, name) for name in _FILE_FIELDS})
        buffer.write((f",{text}" if file_count else text).encode())
        file_count, byte_count, row_count = file_count + 1, byte_count + file.size, row_count + file.rows
    buffer.write(b"]}")
    return EncodedManifest(
        sequence=head.sequence,
        data=buffer.getvalue(),
        file_count=file_count,
        byte_count=byte_count,
        row_count=row_count,
    )


def decode_manifest(data: bytes, key: str = "") -> Manifest:
    """Decode a manifest. Raises a BadObject naming ``key``."""
    fields = _loaded(data, "manifest", key)
    try:
        return Manifest(
            sequence=fields.integer("sequence", 0, SEQUENCE_MAX),
            time_column=fields.text("time_column", NAME_MAX, empty=False),
            columns=tuple(
                (column.text("name", NAME_MAX), column.text("type", NAME_MAX))
                for column in fields.objects("columns", COLUMNS_MAX)
            ),
            files=tuple(_file(file) for file in fields.objects("files", FILES_MAX)),
        )
    except InvalidMessage as error:
        raise BadObject("manifest", -1, str(error), key) from error


def encode_pointer(pointer: Pointer) -> bytes:
    """Return the encoded pointer object."""
    return json.dumps({"format": FORMAT} | asdict(pointer), separators=(",", ":")).encode()


def decode_pointer(data: bytes) -> Pointer:
    """Decode the pointer object. Raises a BadObject."""
    fields = _loaded(data, "pointer", POINTER)
    try:
        pointer = Pointer(
            sequence=fields.integer("sequence", 0, SEQUENCE_MAX),
            manifest=table_path(fields, "manifest"),
            sha256=fields.text("sha256", 64),
        )
    except InvalidMessage as error:
        raise BadObject("pointer", -1, str(error), POINTER) from error
    if pointer.manifest != manifest_key(pointer.sequence):
        raise BadObject("pointer", -1, f"{pointer.manifest!r} is not the key of manifest {pointer.sequence}", POINTER)
    return pointer


def read_pointer(store: ObjectStore) -> Pointer | None:
    """Return the pointer in ``store``, None if there is none. Raises a BadObject, StorageError."""
    try:
        return decode_pointer(store.get(POINTER))
    except ObjectNotFound:
        return None


def read_manifest(store: ObjectStore) -> Manifest | None:
    """Return the current manifest, None for a folder without one; ``store`` is opened at the table's URL.

    Raises a BadObject naming the invalid object, StorageError.
    """
    for _ in range(READ_ATTEMPTS - 1):
        try:
            return _read(store)
        except ObjectNotFound:
            continue
    return _read(store)


def _read(store: ObjectStore) -> Manifest | None:
    pointer = read_pointer(store)
    if pointer is None:
        return None
    data = store.get(pointer.manifest)
    if hashlib.sha256(data).hexdigest() != pointer.sha256:
        raise ChecksumMismatch("manifest", -1, "the SHA-256 differs from the pointer's", pointer.manifest)
    manifest = decode_manifest(data, pointer.manifest)
    if manifest.sequence != pointer.sequence:
        raise BadObject(
            "manifest", -1, f"its sequence is {manifest.sequence}, expected {pointer.sequence}", pointer.manifest
        )
    return manifest


def write_manifest(store: ObjectStore, manifest: EncodedManifest) -> Pointer:
    """Write a manifest and then the pointer to it; return the pointer that is current afterwards.

    Idempotent. A pointer to a later manifest, or to another one of the same sequence, is kept and returned. The caller
    must ensure that only one process at a time writes manifests of a table, in order. Raises ManifestExists.
    """
    if not 0 <= manifest.sequence <= SEQUENCE_MAX:
        raise ValueError(f"{manifest.sequence} is not a valid sequence of a manifest")
    key = manifest_key(manifest.sequence)
    pointer = Pointer(sequence=manifest.sequence, manifest=key, sha256=hashlib.sha256(manifest.data).hexdigest())
    current = read_pointer(store)
    if current is not None and current.sequence >= pointer.sequence:
        return current
    if not _is_written(store, key, manifest.data):
        store.put(key, manifest.data)
    store.put(POINTER, encode_pointer(pointer))
    return pointer


def _is_written(store: ObjectStore, key: str, data: bytes) -> bool:
    try:
        there = store.get(key)
    except ObjectNotFound:
        return False
    if there != data:
        raise ManifestExists(f"{key} exists with other content: it is from a history that the database does not have")
    return True


def columns_of(schema: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    """Return the columns of an Arrow schema in the form of a manifest."""
    return tuple((field.name, str(field.type)) for field in schema)


def _loaded(data: bytes, section: str, key: str) -> Fields:
    try:
        fields = Fields.of(json.loads(data), section)
    except (ValueError, RecursionError, InvalidMessage) as error:
        raise BadObject(section, getattr(error, "pos", -1), f"not a JSON object: {error}", key) from error
    if (found := fields.values.get("format")) != FORMAT:
        raise UnknownFormat(section, -1, f"the format is {found!r}, this build reads {FORMAT}", key)
    return fields


def _file(fields: Fields) -> ManifestFile:
    start = fields.integer("start_ms", TIME_MIN, TIME_MAX - 1)
    low = None if fields.values.get("min_time_ms") is None else fields.integer("min_time_ms", TIME_MIN, TIME_MAX)
    return ManifestFile(
        path=table_path(fields, "path"),
        size=fields.integer("size", 0, COUNT_MAX),
        rows=fields.integer("rows", 0, COUNT_MAX),
        start_ms=start,
        end_ms=fields.integer("end_ms", start + 1, TIME_MAX),
        min_time_ms=low,
        max_time_ms=None if low is None else fields.integer("max_time_ms", low, TIME_MAX),
        version=fields.text("version", NAME_MAX, empty=False),
    )
