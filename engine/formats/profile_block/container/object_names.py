"""Keys of block objects: ``segments/<shard>/anonymous/<id>/block.bin`` and ``blocks/<shard>/<tenant>/<id>/block.bin``.

The compaction level alone distinguishes the two; ``anonymous`` is also a valid tenant.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from engine.core import ulids
from engine.core.errors import BadBlockName

SEGMENTS = "segments"
BLOCKS = "blocks"
DEAD_LETTERS = "dlq"
ANONYMOUS = "anonymous"
OBJECT = "block.bin"
METADATA_OBJECT = "meta.pb"
SHARD_MAX = (1 << 32) - 1
TENANT_LENGTH_MAX = 150

_TENANT = re.compile(rf"[A-Za-z0-9!_.*'()-]{{1,{TENANT_LENGTH_MAX}}}")


class BlockKey(NamedTuple):
    """The parts of a block's key. ``tenant`` is "" for a segment, whose tenants are in its metadata."""

    shard: int
    tenant: str
    id: str
    is_segment: bool


def check_tenant(tenant: str) -> str:
    """Return the tenant. Raises BadBlockName unless it is valid as a path component and a header value."""
    if not _TENANT.fullmatch(tenant) or tenant in (".", ".."):
        raise BadBlockName(tenant, f"a tenant is 1 to {TENANT_LENGTH_MAX} of A-Z a-z 0-9 ! _ . * ' ( ) -, not . or ..")
    return tenant


def block_key(shard: int, tenant: str, level: int, block_id: str) -> str:
    """Return the object key of a block; that of level 0 (a segment) does not contain the tenant."""
    if level == 0:
        return f"{SEGMENTS}/{_shard_text(shard)}/{ANONYMOUS}/{_checked_id(block_id)}/{OBJECT}"
    return f"{BLOCKS}/{_shard_text(shard)}/{check_tenant(tenant)}/{_checked_id(block_id)}/{OBJECT}"


def dead_letter_key(shard: int, tenant: str, block_id: str) -> str:
    """Return the key of metadata that could not be registered; the tenant of a segment is ""."""
    folder = check_tenant(tenant) if tenant else ANONYMOUS
    return f"{DEAD_LETTERS}/{_shard_text(shard)}/{folder}/{_checked_id(block_id)}/{METADATA_OBJECT}"


def parse_block_key(key: str) -> BlockKey:
    """Return the parts of a block's key. Raises BadBlockName unless ``block_key`` returns the same key."""
    parts = key.split("/")
    if len(parts) != 5 or parts[0] not in (SEGMENTS, BLOCKS) or parts[4] != OBJECT:
        raise BadBlockName(key, f"not a block's key ({SEGMENTS} or {BLOCKS}/<shard>/<tenant>/<id>/{OBJECT})")
    is_segment = parts[0] == SEGMENTS
    if is_segment and parts[2] != ANONYMOUS:
        raise BadBlockName(key, f"a segment must be below {ANONYMOUS!r}")
    tenant = "" if is_segment else check_tenant(parts[2])
    return BlockKey(_parse_shard(key, parts[1]), tenant, _checked_id(parts[3]), is_segment)


def parse_dead_letter_key(key: str) -> BlockKey:
    """Return the parts of a dead letter's key. Raises BadBlockName unless ``dead_letter_key`` returns the same key.

    A key below ``anonymous`` is taken for that of a segment; the metadata decides, as a tenant may have this name.
    """
    parts = key.split("/")
    if len(parts) != 5 or parts[0] != DEAD_LETTERS or parts[4] != METADATA_OBJECT:
        raise BadBlockName(key, f"not a dead letter's key ({DEAD_LETTERS}/<shard>/<tenant>/<id>/{METADATA_OBJECT})")
    is_segment = parts[2] == ANONYMOUS
    tenant = "" if is_segment else check_tenant(parts[2])
    return BlockKey(_parse_shard(key, parts[1]), tenant, _checked_id(parts[3]), is_segment)


def _shard_text(shard: int) -> str:
    if not 0 <= shard <= SHARD_MAX:
        raise BadBlockName(str(shard), "a shard must be an unsigned 32-bit number")
    return str(shard)


def _parse_shard(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or str(int(text[:11])) != text or int(text) > SHARD_MAX:
        raise BadBlockName(key, "the shard is not a decimal unsigned 32-bit number")
    return int(text)


def _checked_id(block_id: str) -> str:
    ulids.parse(block_id)
    return block_id
