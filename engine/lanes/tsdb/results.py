"""Read and check the result of a merge of Prometheus blocks from a worker's report, which is untrusted."""

from __future__ import annotations

import re

from engine.lanes.tsdb.jobs import KIND, BlockFile, TsdbMergeResult, WrittenBlock
from engine.protocol.errors import InvalidMessage
from engine.protocol.fields import COUNT_MAX, Fields
from engine.protocol.wire import NAME_MAX

SOURCES_MAX = 100_000
FILES_MAX = 100_000
META_BYTES_MAX = 16 << 20
ULID_LENGTH = 26
_FILE = re.compile(r"index|tombstones|chunks/[0-9]{6}")


def read_tsdb_result(data: object) -> TsdbMergeResult:
    """Return the checked result. Raises InvalidMessage."""
    fields = Fields.of(data, "result")
    if fields.text("kind", NAME_MAX) != KIND:
        raise fields.error("kind", f"{KIND!r} is expected")
    sources = fields.items("sources", SOURCES_MAX)
    if not all(isinstance(source, str) and len(source) == ULID_LENGTH for source in sources):
        raise InvalidMessage("result.sources", "block ids are expected")
    blocks = fields.objects("blocks", 1)
    return TsdbMergeResult(
        sources=tuple(sources),
        block=_block(blocks[0]) if blocks else None,
        samples_read=fields.integer("samples_read", 0, COUNT_MAX, default=0),
        samples_dropped=fields.integer("samples_dropped", 0, COUNT_MAX, default=0),
        series_read=fields.integer("series_read", 0, COUNT_MAX, default=0),
        bytes_read=fields.integer("bytes_read", 0, COUNT_MAX, default=0),
    )


def is_file_name(name: str) -> bool:
    """Return whether a block may have a file of this name beside its ``meta.json``."""
    return _FILE.fullmatch(name) is not None


def _block(fields: Fields) -> WrittenBlock:
    files = tuple(_file(file) for file in fields.objects("files", FILES_MAX))
    names = [file.name for file in files]
    if len(set(names)) != len(names):
        raise fields.error("files", "a name appears twice")
    if "index" not in names:
        raise fields.error("files", "the index is missing")
    return WrittenBlock(
        id=fields.text("id", ULID_LENGTH, empty=False), files=files, meta=fields.data("meta", META_BYTES_MAX)
    )


def _file(fields: Fields) -> BlockFile:
    name = fields.text("name", NAME_MAX)
    if not is_file_name(name):
        raise fields.error("name", "index, tombstones or chunks/ with six digits is expected")
    return BlockFile(
        name=name,
        size=fields.integer("size", 0, COUNT_MAX),
        crc32c=fields.integer("crc32c", 0, (1 << 32) - 1),
    )
