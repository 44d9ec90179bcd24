"""Decode the list of blocks that a writer sends; each entry is checked separately, so a bad one does not affect others.

An entry names the key of its object. A key of our own layout must be the one derived from the metadata: otherwise a
sender could have other tenants' objects merged, or deleted, as its own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError

from engine.core.errors import BadBlockName, BadObject, LithifyError
from engine.formats.profile_block.container.metadata import decode_metadata, encode_metadata
from engine.formats.profile_block.container.object_names import BLOCKS, DEAD_LETTERS, OBJECT, SEGMENTS, block_key
from engine.formats.profile_block.model import BlockMeta
from engine.formats.proto import block_list_pb2
from engine.storage.keys import check_key
from engine.storage.model import InvalidKey
from webadmin.lanes.profiles.bucket.lineage_objects import LINEAGE
from webadmin.lanes.profiles.errors import BlockRefused, InvalidBatch
from webadmin.lanes.profiles.registration import BlockRegistration

CONTENT_TYPE = "application/x-protobuf"
OWN_FOLDERS = {SEGMENTS, BLOCKS, DEAD_LETTERS, LINEAGE}


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedBlock:
    """An entry of the list: a registration, or the error instead. ``id`` is "" if it cannot be read."""

    id: str
    registration: BlockRegistration | None = None
    error: LithifyError | None = None


def read_block_list(data: bytes, *, count_max: int, tenants: Collection[str] = ()) -> list[OfferedBlock]:
    """Decode a BlockMetaList of at most ``count_max`` entries; with ``tenants``, refuse data of other tenants.

    Raises InvalidBatch.
    """
    message = block_list_pb2.BlockMetaList()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise InvalidBatch(f"the body is no protobuf BlockMetaList: {error}") from error
    if not 0 < len(message.blocks) <= count_max:
        raise InvalidBatch(f"{len(message.blocks)} blocks: send 1 to {count_max} in one call")
    return [_offered(entry, tenants) for entry in message.blocks]


def _offered(entry: block_list_pb2.BlockEntry, tenants: Collection[str]) -> OfferedBlock:
    block_id = ""
    try:
        meta = replace(decode_metadata(entry.metadata), size=entry.size)
        block_id = meta.id
        if tenants:
            _check_tenants(meta, tenants)
        registration = BlockRegistration(
            meta=meta,
            metadata=encode_metadata(meta),  # canonical encoding, without unknown fields of the sender
            object_key=_key(meta, entry.object_key),
            size_bytes=entry.size,
            crc32c=entry.crc32c if entry.HasField("crc32c") else None,
        )
        return OfferedBlock(id=block_id, registration=registration)
    except BadObject as error:
        code = "bad_id" if "ULID" in error.reason else "bad_metadata"
        return OfferedBlock(id=block_id, error=BlockRefused(str(error), code))
    except BlockRefused as error:
        return OfferedBlock(id=block_id, error=error)


def _check_tenants(meta: BlockMeta, tenants: Collection[str]) -> None:
    if meta.compaction_level:
        raise BlockRefused(
            f"block {meta.id}: a credential of single tenants registers segments only, and this block has level "
            f"{meta.compaction_level}; operators register such blocks with manage.py import_blocks",
            "tenant_not_allowed",
        )
    for tenant in {dataset.tenant for dataset in meta.datasets} | {meta.tenant} - {""}:
        if tenant not in tenants:
            raise BlockRefused(f"block {meta.id}: the credential is not for tenant {tenant!r}", "tenant_not_allowed")


def _key(meta: BlockMeta, offered: str) -> str:
    try:
        own = block_key(meta.shard, meta.tenant, meta.compaction_level, meta.id)
        key = check_key("add", offered) if offered else own
    except BadBlockName as error:
        code = "bad_id" if error.name == meta.id else "bad_tenant"
        raise BlockRefused(f"block {meta.id}: {error}", code) from error
    except InvalidKey as error:
        raise BlockRefused(f"block {meta.id}: {error}", "bad_key") from error
    parts = key.split("/")
    if key != own and (parts[0] in OWN_FOLDERS or parts[-2:] != [meta.id, OBJECT]):
        raise BlockRefused(f"block {meta.id}: its object is {own!r} or …/{meta.id}/{OBJECT}, not {key!r}", "bad_key")
    return key
