"""Codec of meta.json: the metadata of a block and its compaction lineage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.core import ulids
from engine.core.errors import BadBlockName, BadObject, LimitExceeded, UnknownFormat
from engine.formats.prometheus.model import INT64_MAX, INT64_MIN, UINT64_MASK

SECTION = "meta.json"
VERSION = 1
META_BYTES_MAX = 16 << 20
"""Sufficient for more than a hundred thousand sources."""

_STATS = ("num_samples", "num_series", "num_chunks", "num_float_samples", "num_histogram_samples", "num_tombstones")


@dataclass(frozen=True, slots=True)
class BlockStats:
    """Counts of a block's contents, 0 if absent. Only recent writers count float and histogram samples."""

    num_samples: int = 0
    num_series: int = 0
    num_chunks: int = 0
    num_float_samples: int = 0
    num_histogram_samples: int = 0
    num_tombstones: int = 0


@dataclass(frozen=True, slots=True)
class ParentBlock:
    """A direct input of the merge that wrote a block; times are milliseconds, ``max_time_ms`` exclusive."""

    ulid: str
    min_time_ms: int
    max_time_ms: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """The lineage of a block: its level (1 plus the highest level of its inputs) and its level-1 sources."""

    level: int
    sources: tuple[str, ...] = ()
    parents: tuple[ParentBlock, ...] = ()
    deletable: bool = False
    failed: bool = False
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockMeta:
    """A meta.json. Times are milliseconds, ``max_time_ms`` exclusive; ``thanos`` is the object of that name."""

    ulid: str
    min_time_ms: int
    max_time_ms: int
    stats: BlockStats
    compaction: Compaction
    thanos: Mapping[str, object] | None = field(default=None, hash=False)


def decode_meta(data: bytes) -> BlockMeta:
    """Return a decoded meta.json; unknown keys are ignored, known keys are validated. Raises BadObject."""
    document = _Fields(_document(data), "")
    version = document.integer("version", 0, UINT64_MASK)
    if version != VERSION:
        raise UnknownFormat(SECTION, -1, f"version {version} is not supported, expected {VERSION}")
    meta = BlockMeta(
        ulid=document.ulid("ulid"),
        min_time_ms=document.integer("minTime", INT64_MIN, INT64_MAX),
        max_time_ms=document.integer("maxTime", INT64_MIN, INT64_MAX),
        stats=_stats(document.fields("stats", optional=True)),
        compaction=_compaction(document.fields("compaction")),
        thanos=document.fields("thanos").values if document.values.get("thanos") is not None else None,
    )
    if meta.min_time_ms >= meta.max_time_ms:
        raise BadObject(SECTION, -1, f"minTime {meta.min_time_ms} is not before maxTime {meta.max_time_ms}")
    return meta


def encode_meta(meta: BlockMeta) -> bytes:
    """Return a meta.json with the key order and indentation of Prometheus."""
    compaction: dict[str, object] = {"level": meta.compaction.level}
    if meta.compaction.sources:
        compaction["sources"] = list(meta.compaction.sources)
    if meta.compaction.deletable:
        compaction["deletable"] = True
    if meta.compaction.parents:
        compaction["parents"] = [
            {"ulid": parent.ulid, "minTime": parent.min_time_ms, "maxTime": parent.max_time_ms}
            for parent in meta.compaction.parents
        ]
    if meta.compaction.failed:
        compaction["failed"] = True
    if meta.compaction.hints:
        compaction["hints"] = list(meta.compaction.hints)
    document: dict[str, object] = {
        "ulid": meta.ulid,
        "minTime": meta.min_time_ms,
        "maxTime": meta.max_time_ms,
        "stats": {_camel(name): count for name in _STATS if (count := getattr(meta.stats, name))},
        "compaction": compaction,
        "version": VERSION,
    }
    if meta.thanos is not None:
        document["thanos"] = meta.thanos
    return json.dumps(document, ensure_ascii=False, indent="\t").encode()


def _document(data: bytes) -> object:
    if len(data) > META_BYTES_MAX:
        raise LimitExceeded(SECTION, -1, f"{len(data)} bytes exceed the maximum of {META_BYTES_MAX}")
    try:
        document = json.loads(data.decode(), parse_constant=_reject_constant)
        json.dumps(document, ensure_ascii=False).encode()  # a lone surrogate can be decoded but not encoded
    except json.JSONDecodeError as error:
        raise BadObject(SECTION, error.pos, f"not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise BadObject(SECTION, -1, f"not JSON: {error}") from error
    return document


def _reject_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _stats(document: _Fields) -> BlockStats:
    counts = (document.integer(_camel(name), 0, UINT64_MASK, optional=True) for name in _STATS)
    return BlockStats(*counts)


def _compaction(document: _Fields) -> Compaction:
    return Compaction(
        level=document.integer("level", 0, INT64_MAX),
        sources=tuple(_block_id(each, "compaction.sources") for each in document.items("sources")),
        parents=tuple(_parent(_Fields(each, "compaction.parents")) for each in document.items("parents")),
        deletable=document.flag("deletable"),
        failed=document.flag("failed"),
        hints=tuple(_text(each, "compaction.hints") for each in document.items("hints")),
    )


def _parent(document: _Fields) -> ParentBlock:
    return ParentBlock(
        ulid=document.ulid("ulid"),
        min_time_ms=document.integer("minTime", INT64_MIN, INT64_MAX),
        max_time_ms=document.integer("maxTime", INT64_MIN, INT64_MAX),
    )


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise BadObject(SECTION, -1, f"{name} is not a string")
    return value


def _block_id(value: object, name: str) -> str:
    text = _text(value, name)
    try:
        ulids.parse(text)
    except BadBlockName as error:
        raise BadObject(SECTION, -1, f"{name}: {error}") from error
    return text


class _Fields:
    """Typed access to the members of a JSON object; ``path`` is its position in the document."""

    def __init__(self, values: object, path: str) -> None:
        if not isinstance(values, dict):
            raise BadObject(SECTION, -1, f"{path or 'the document'} is not an object")
        self.values: dict[str, object] = values
        self._path = path

    def integer(self, key: str, low: int, high: int, *, optional: bool = False) -> int:
        value = self.values.get(key, 0 if optional else None)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise BadObject(SECTION, -1, f"{self._name(key)} is not an integer from {low} to {high}")
        return value

    def flag(self, key: str) -> bool:
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise BadObject(SECTION, -1, f"{self._name(key)} is not true or false")
        return value

    def ulid(self, key: str) -> str:
        return _block_id(self.values.get(key), self._name(key))

    def items(self, key: str) -> list[object]:
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise BadObject(SECTION, -1, f"{self._name(key)} is not a list")
        return value

    def fields(self, key: str, *, optional: bool = False) -> _Fields:
        return _Fields(self.values.get(key, {} if optional else None), self._name(key))

    def _name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key
