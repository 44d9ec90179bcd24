"""Read and check the specification of a merge of Prometheus blocks on the worker, where ids and names become paths."""

from __future__ import annotations

from engine.core import ulids
from engine.core.errors import BadBlockName
from engine.lanes.tsdb.jobs import KIND, BlockFile, TsdbMergeSpec, TsdbSource
from engine.lanes.tsdb.results import FILES_MAX, META_BYTES_MAX, SOURCES_MAX, is_file_name
from engine.protocol.errors import InvalidMessage
from engine.protocol.fields import COUNT_MAX, Fields, json_object
from engine.protocol.wire import JOB_NAME_MAX, KEY_MAX, NAME_MAX
from engine.storage.keys import check_key
from engine.storage.model import InvalidKey

LAYOUTS = ("cortex", "thanos")
WINNERS = ("default", "prometheus")
"""Rules for conflicting samples of one series and time: Lithify's own and that of Prometheus."""
PARTITIONS_MAX = 1 << 20
LEVEL_MAX = (1 << 32) - 1
"""A level is part of a result's id as 32 bits."""
URL_MAX = 4096
TIME_MIN, TIME_MAX = -(1 << 63), (1 << 63) - 1


def read_tsdb_spec(data: object) -> TsdbMergeSpec:
    """Return the checked specification. Raises InvalidMessage."""
    fields = Fields.of(data, "spec")
    if fields.text("kind", NAME_MAX) != KIND:
        raise fields.error("kind", f"{KIND!r} is expected")
    sources = tuple(_source(source) for source in fields.objects("sources", SOURCES_MAX))
    if not sources:
        raise fields.error("sources", "at least one is expected")
    if len({source.id for source in sources}) != len(sources):
        raise fields.error("sources", "a block appears twice")
    partitions = fields.integer("partitions", 1, PARTITIONS_MAX)
    start = fields.integer("range_start_ms", TIME_MIN, TIME_MAX)
    return TsdbMergeSpec(
        job=fields.text("job", JOB_NAME_MAX, empty=False),
        tenant=fields.text("tenant", KEY_MAX),
        level=fields.integer("level", 0, LEVEL_MAX),
        bucket_url=fields.text("bucket_url", URL_MAX, empty=False),
        layout=fields.choice("layout", LAYOUTS),
        folder=_folder(fields),
        range_start_ms=start,
        range_end_ms=fields.integer("range_end_ms", start + 1, TIME_MAX),
        sources=sources,
        partition=fields.integer("partition", 0, partitions - 1),
        partitions=partitions,
        winner=fields.choice("winner", WINNERS),
        thanos=json_object(fields, "thanos"),
        fence=fields.integer("fence", 0, COUNT_MAX) if fields.values.get("fence") is not None else None,
        task_memory_bytes=fields.integer("task_memory_bytes", 1, COUNT_MAX),
    )


def _folder(fields: Fields) -> str:
    folder = fields.text("folder", KEY_MAX)
    if folder:
        try:
            check_key("read", folder + "x")
        except InvalidKey as error:
            raise fields.error("folder", error.reason) from error
        if not folder.endswith("/"):
            raise fields.error("folder", "a trailing slash is expected")
    return folder


def _source(fields: Fields) -> TsdbSource:
    block_id = fields.text("id", ulids.LENGTH)
    try:
        ulids.parse(block_id)
    except BadBlockName as error:
        raise fields.error("id", error.reason) from error
    files = tuple(_file(file) for file in fields.objects("files", FILES_MAX))
    if len({file.name for file in files}) != len(files):
        raise fields.error("files", "a name appears twice")
    return TsdbSource(
        id=block_id, level=fields.integer("level", 0, LEVEL_MAX), files=files, meta=fields.data("meta", META_BYTES_MAX)
    )


def _file(fields: Fields) -> BlockFile:
    name = fields.text("name", NAME_MAX)
    if not is_file_name(name):
        raise InvalidMessage(f"{fields.path}.name", f"{name!r} is not a file of a block")
    crc32c = fields.integer("crc32c", 0, (1 << 32) - 1) if fields.values.get("crc32c") is not None else None
    return BlockFile(name=name, size=fields.integer("size", 0, COUNT_MAX), crc32c=crc32c)
