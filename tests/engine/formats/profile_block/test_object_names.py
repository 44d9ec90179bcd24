"""Object keys: there and back, and no key that leaves its folder."""

from __future__ import annotations

import pytest

from engine.core.errors import BadBlockName
from engine.formats.profile_block.container.object_names import (
    BlockKey,
    block_key,
    check_tenant,
    dead_letter_key,
    parse_block_key,
)

ID = "01JKT3DJRETWN25NKEFZNEP1V0"


@pytest.mark.parametrize(
    ("shard", "tenant", "level", "key"),
    [
        (1, "", 0, f"segments/1/anonymous/{ID}/block.bin"),
        (1, "acme", 0, f"segments/1/anonymous/{ID}/block.bin"),
        (12, "acme", 1, f"blocks/12/acme/{ID}/block.bin"),
        (12, "anonymous", 3, f"blocks/12/anonymous/{ID}/block.bin"),
    ],
)
def test_the_level_alone_decides_where_a_block_lies(shard: int, tenant: str, level: int, key: str) -> None:
    assert block_key(shard, tenant, level, ID) == key
    assert parse_block_key(key) == BlockKey(shard, tenant if level else "", ID, level == 0)


def test_dead_letters_lie_by_tenant() -> None:
    assert dead_letter_key(3, "", ID) == f"dlq/3/anonymous/{ID}/meta.pb"
    assert dead_letter_key(3, "acme", ID) == f"dlq/3/acme/{ID}/meta.pb"


@pytest.mark.parametrize("tenant", ["", ".", "..", "a/b", "a b", "ä", "a\n", "x" * 151])
def test_a_tenant_that_is_no_path_part_is_refused(tenant: str) -> None:
    with pytest.raises(BadBlockName):
        check_tenant(tenant)


@pytest.mark.parametrize(
    "key",
    [
        "",
        f"blocks/1/acme/{ID}",
        f"blocks/1/acme/{ID}/meta.pb",
        f"blocks/01/acme/{ID}/block.bin",
        f"blocks/4294967296/acme/{ID}/block.bin",
        f"blocks/{'9' * 5000}/acme/{ID}/block.bin",
        f"blocks/x/acme/{ID}/block.bin",
        f"blocks/1/../{ID}/block.bin",
        "blocks/1/acme/short/block.bin",
        f"segments/1/acme/{ID}/block.bin",
        f"other/1/acme/{ID}/block.bin",
    ],
)
def test_a_key_of_another_shape_is_no_block(key: str) -> None:
    with pytest.raises(BadBlockName):
        parse_block_key(key)


def test_a_negative_shard_has_no_key() -> None:
    with pytest.raises(BadBlockName):
        block_key(-1, "acme", 1, ID)
