"""Where datasets' sections lie in their object, read without the rest of the metadata."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import DecodeError

from engine.core.errors import BadObject, BadReference
from engine.formats.proto import block_pb2


def read_tables_of_contents(metadata: bytes, positions: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Return the tables of contents of the datasets at these positions. ``metadata`` was checked when it was taken in;
    a BadObject of section "metadata" says that it no longer is what it was."""
    message = block_pb2.BlockMeta()
    try:
        message.ParseFromString(metadata)
    except DecodeError as error:
        raise BadObject("metadata", 0, f"not a protobuf block metadata message: {error}") from error
    tables: dict[int, tuple[int, ...]] = {}
    for position in positions:
        if not 0 <= position < len(message.datasets):
            raise BadReference("metadata", -1, f"dataset {position} of {len(message.datasets)}")
        tables[position] = tuple(message.datasets[position].table_of_contents)
    return tables
