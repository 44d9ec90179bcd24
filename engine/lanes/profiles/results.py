"""Parse the result of a profile merge from a worker's report. The input is untrusted."""

from __future__ import annotations

from engine.lanes.profiles.jobs import KIND, ProfileMergeResult, ResultBlock
from engine.protocol.errors import InvalidMessage
from engine.protocol.fields import COUNT_MAX, Fields
from engine.protocol.wire import KEY_MAX, NAME_MAX

SOURCES_MAX = 1000
BLOCKS_MAX = 10_000
"""Maximum blocks of a result: one per tenant of a segment, more for tenants with split datasets."""
MASKS_MAX = 100_000
METADATA_BYTES_MAX = 16 << 20
ULID_LENGTH = 26


def read_profile_result(data: object) -> ProfileMergeResult:
    """Return the validated result. Raises InvalidMessage."""
    fields = Fields.of(data, "result")
    if fields.text("kind", NAME_MAX) != KIND:
        raise fields.error("kind", f"{KIND!r} is expected")
    sources = fields.items("sources", SOURCES_MAX)
    if not all(isinstance(source, str) and len(source) == ULID_LENGTH for source in sources):
        raise InvalidMessage("result.sources", "block ids are expected")
    masks = fields.items("masks", MASKS_MAX, default=())
    if not all(type(index) is int for index in masks):
        raise InvalidMessage("result.masks", "indexes of delete commands are expected")
    return ProfileMergeResult(
        sources=tuple(sources),
        masks=tuple(masks),
        blocks=tuple(_block(block) for block in fields.objects("blocks", BLOCKS_MAX)),
        rows_read=fields.integer("rows_read", 0, COUNT_MAX, default=0),
        rows_dropped=fields.integer("rows_dropped", 0, COUNT_MAX, default=0),
        bytes_read=fields.integer("bytes_read", 0, COUNT_MAX, default=0),
    )


def _block(fields: Fields) -> ResultBlock:
    return ResultBlock(
        id=fields.text("id", ULID_LENGTH),
        key=fields.text("key", KEY_MAX),
        size=fields.integer("size", 0, COUNT_MAX),
        crc32c=fields.integer("crc32c", 0, (1 << 32) - 1),
        metadata=fields.data("metadata", METADATA_BYTES_MAX),
    )
