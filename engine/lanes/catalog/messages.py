"""Read and check specifications and results of the catalog lane. All input is verified; errors name the field."""

from __future__ import annotations

import re

from engine.lanes.catalog.jobs import KIND, CatalogCompactResult, CatalogCompactSpec, LayerFile, Span
from engine.protocol.fields import COUNT_MAX, Fields
from engine.protocol.wire import JOB_NAME_MAX, KEY_MAX, NAME_MAX
from engine.storage.keys import check_key
from engine.storage.model import InvalidKey

LAYERS_MAX = 10_000
RANGES_MAX = 1_000_000
INTERVALS_MAX = 100_000
ENTRY_KEY_MAX = 1025
"""An interval may end at the successor of a key of 1,024 bytes."""
_ID = re.compile("[0-9a-f]{64}")
_COUNTS = (
    "rows_read",
    "added",
    "changed",
    "removed",
    "bytes_changed",
    "bytes_written",
    "ranges_kept",
    "ranges_dropped",
)


def read_catalog_spec(data: object) -> CatalogCompactSpec:
    """Return the checked specification. Raises InvalidMessage."""
    fields = Fields.of(data, "spec")
    _check_kind(fields)
    return CatalogCompactSpec(
        job=fields.text("job", JOB_NAME_MAX, empty=False),
        tenant=fields.text("tenant", KEY_MAX),
        prefix=_key(fields, "prefix", is_folder=True),
        base=_id(fields, "base"),
        head=_id(fields, "head"),
        layers=tuple(_layer(each) for each in fields.objects("layers", LAYERS_MAX)),
        bytes_min=fields.integer("bytes_min", 0, COUNT_MAX),
        bytes_max=fields.integer("bytes_max", 1, COUNT_MAX),
        every=fields.integer("every", 1, 1 << 32),
        borders_every=fields.integer("borders_every", 1, 1 << 30),
        unit_bytes=fields.integer("unit_bytes", 1, COUNT_MAX),
        task_memory_bytes=fields.integer("task_memory_bytes", 1, COUNT_MAX),
        here_rows=fields.integer("here_rows", 0, COUNT_MAX),
        here_bytes=fields.integer("here_bytes", 0, COUNT_MAX),
    )


def read_catalog_result(data: object) -> CatalogCompactResult:
    """Return the checked result. Raises InvalidMessage."""
    fields = Fields.of(data, "result")
    _check_kind(fields)
    equals_head = fields.values.get("equals_head")
    if not isinstance(equals_head, bool):
        raise fields.error("equals_head", "true or false is expected")
    counts = {name: fields.integer(name, 0, COUNT_MAX, default=0) for name in _COUNTS}
    written = fields.items("written", RANGES_MAX, default=())
    if not all(isinstance(id_, str) and _ID.fullmatch(id_) for id_ in written):
        raise fields.error("written", "ids of 64 hexadecimal digits are expected")
    return CatalogCompactResult(
        metarange=_id(fields, "metarange"), equals_head=equals_head, written=tuple(written), **counts
    )


def _layer(fields: Fields) -> LayerFile:
    file_bytes = fields.integer("file_bytes", 1, COUNT_MAX)
    return LayerFile(
        key=_key(fields, "key"),
        rows=fields.integer("rows", 0, COUNT_MAX),
        file_bytes=file_bytes,
        tail_bytes=fields.integer("tail_bytes", 1, file_bytes),
        intervals=tuple(_interval(fields, number) for number in range(len(fields.items("intervals", INTERVALS_MAX)))),
    )


def _interval(fields: Fields, number: int) -> Span:
    ends = fields.items("intervals", INTERVALS_MAX)[number]
    place = f"intervals[{number}]"
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        raise fields.error(place, "a pair of start and end keys is expected")
    pair = Fields.of({"start": ends[0], "end": ends[1]}, f"{fields.path}.{place}")
    end = None if ends[1] is None else pair.data("end", ENTRY_KEY_MAX)
    return pair.data("start", ENTRY_KEY_MAX), end


def _check_kind(fields: Fields) -> None:
    if fields.text("kind", NAME_MAX) != KIND:
        raise fields.error("kind", f"{KIND!r} is expected")


def _id(fields: Fields, name: str) -> str:
    value = fields.text(name, 64)
    if not _ID.fullmatch(value):
        raise fields.error(name, "64 hexadecimal digits are expected")
    return value


def _key(fields: Fields, name: str, *, is_folder: bool = False) -> str:
    key = fields.text(name, KEY_MAX)
    if is_folder and key and not key.endswith("/"):
        raise fields.error(name, "a trailing slash is expected")
    try:
        check_key("read", key + "x" if is_folder else key)
    except InvalidKey as error:
        raise fields.error(name, error.reason) from error
    return key
