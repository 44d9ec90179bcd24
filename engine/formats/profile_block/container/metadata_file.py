"""Reader of block metadata in a JSON file, for segments that have no footer.

The file is ``{"blocks": [...]}`` with the messages in the JSON form of protobuf: lowerCamelCase names, 64-bit numbers
as strings, zero fields omitted.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from google.protobuf import json_format

from engine.core.errors import BadObject
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.model import BlockMeta
from engine.formats.proto import block_pb2

_SECTION = "metadata_file"


def read_metadata_file(data: bytes) -> list[BlockMeta]:
    """Return the metadata of a file. Raises BadObject with the section "metadata_file", which names the block."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadObject(_SECTION, getattr(error, "pos", -1), f"not JSON: {error}") from error
    blocks = parsed.get("blocks") if isinstance(parsed, dict) else None
    if not isinstance(blocks, list):
        raise BadObject(_SECTION, 0, 'expected an object with a list "blocks"')
    return [_block(position, block) for position, block in enumerate(blocks)]


def _block(position: int, block: Any) -> BlockMeta:
    message = block_pb2.BlockMeta()
    try:
        json_format.ParseDict(block, message, ignore_unknown_fields=True)
    except (json_format.ParseError, TypeError) as error:  # TypeError: not an object
        raise BadObject(_SECTION, -1, f"block {position}: {error}") from error
    meta = decode_metadata(message.SerializeToString())
    return replace(meta, size=message.size)
