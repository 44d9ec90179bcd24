"""Jump consistent hash: one suite for the plain twin and the compiled one (sheet, sections 2 and 13.1; property 4)."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.placement import _jump_hash, _jump_hash_py, jump_hash
from engine.placement.errors import BadBuckets
from tests.engine.placement.vectors import JUMP_BUCKETS, JUMP_TABLE, PUBLISHED_JUMPS

TWINS = [_jump_hash_py, _jump_hash]
CHI_SQUARE_9_AT_5_PERCENT = 16.92
keys = st.integers(0, (1 << 64) - 1)


@pytest.fixture(params=TWINS, ids=["twin", "compiled"])
def implementation(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def test_the_table_of_buckets_holds(implementation: ModuleType) -> None:
    for key, buckets in JUMP_TABLE.items():
        assert [implementation.jump_hash(key, count) for count in JUMP_BUCKETS] == buckets, key


def test_published_vectors_hold(implementation: ModuleType) -> None:
    for key, count, bucket in PUBLISHED_JUMPS:
        assert implementation.jump_hash(key, count) == bucket


def test_vectors_hold_for_whole_arrays(implementation: ModuleType) -> None:
    keys_of_table = np.array(list(JUMP_TABLE), np.uint64)
    for column, count in enumerate(JUMP_BUCKETS):
        found = implementation.jump_hash_array(keys_of_table, count)
        assert found.tolist() == [row[column] for row in JUMP_TABLE.values()]


@pytest.mark.parametrize("length", range(10))
def test_arrays_of_every_length_are_hashed_to_their_end(implementation: ModuleType, length: int) -> None:
    some = np.arange(length, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert implementation.jump_hash_array(some, 1000).tolist() == [_jump_hash_py.jump_hash(int(k), 1000) for k in some]


def test_the_hash_without_buckets_is_minus_one(implementation: ModuleType) -> None:
    assert [implementation.jump_hash(7, buckets) for buckets in (0, -1, -(1 << 62))] == [-1, -1, -1]


@pytest.mark.row("placement-property-4")
@given(keys, st.integers(1, 3000))
def test_a_key_stays_or_goes_to_the_new_bucket(key: int, buckets: int) -> None:
    before, after = jump_hash.jump_hash(key, buckets), jump_hash.jump_hash(key, buckets + 1)
    assert after in (before, buckets)
    assert 0 <= before < buckets


@given(st.lists(keys, max_size=20), st.integers(1, jump_hash.BUCKETS_MAX))
def test_twin_and_compiled_agree(some: list[int], buckets: int) -> None:
    expected = [_jump_hash_py.jump_hash(key, buckets) for key in some]
    assert [_jump_hash.jump_hash(key, buckets) for key in some] == expected
    assert jump_hash.jump_hash_array(np.array(some, np.uint64), buckets).tolist() == expected


@pytest.mark.row("placement-property-4")
def test_keys_are_spread_evenly_and_as_few_as_possible_move() -> None:
    some = np.random.default_rng(4).integers(0, 1 << 64, 200_000, np.uint64)
    ten, eleven = jump_hash.jump_hash_array(some, 10), jump_hash.jump_hash_array(some, 11)
    counts = np.bincount(ten, minlength=10)
    assert ((counts - 20_000) ** 2 / 20_000).sum() < CHI_SQUARE_9_AT_5_PERCENT
    assert (ten != eleven).mean() == pytest.approx(1 / 11, abs=0.003)
    assert set(eleven[ten != eleven].tolist()) == {10}


@pytest.mark.parametrize("buckets", [0, -1, -(1 << 70), 1 << 31, 1 << 70])
def test_a_hostile_number_of_buckets_is_refused(buckets: int) -> None:
    with pytest.raises(BadBuckets, match="buckets"):
        jump_hash.jump_hash(1, buckets)
    with pytest.raises(BadBuckets, match="buckets"):
        jump_hash.jump_hash_array([1, 2], buckets)


@pytest.mark.parametrize("key", [-1, 1 << 64])
def test_a_key_that_is_no_unsigned_64_bit_number_is_refused(key: int) -> None:
    with pytest.raises(OverflowError):
        jump_hash.jump_hash(key, 10)
    with pytest.raises(OverflowError):
        jump_hash.jump_hash_array([key], 10)
