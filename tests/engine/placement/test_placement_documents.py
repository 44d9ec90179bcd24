"""Rules, ring and state as bytes: what is written is read back, and hostile bytes give one typed error."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.placement import documents
from engine.placement.documents import (
    decode_ring,
    decode_rules,
    decode_statistics,
    encode_ring,
    encode_rules,
    encode_statistics,
)
from engine.placement.errors import BadDocument
from engine.placement.model import DatasetRule, Instance, LoadBalancing, PlacementRules, TenantLimits
from engine.placement.placer import Placer
from engine.placement.proto import placement_pb2 as pb
from engine.placement.publication import load_ring, publish_ring
from engine.placement.ring import EMPTY_RING, change_ring
from engine.placement.signatures import SignedStore
from engine.placement.state_document import PlacementState, decode_state, encode_state
from engine.placement.statistics import PlacementStatistics
from engine.storage.local import LocalStore

RULES = PlacementRules(
    version=3,
    created_at_ms=1_800_000_000_123,
    datasets={
        ("a", "checkout"): DatasetRule(tenant_shards=8, dataset_shards=4, load_balancing=LoadBalancing.ROUND_ROBIN),
        ("b", ""): DatasetRule(tenant_shards=0, dataset_shards=1, shards=(3, 1), updated_at_ms=77),
    },
    tenants={"z": TenantLimits(may_leave_zone=False, load_balancing=LoadBalancing.FINGERPRINT)},
)
RING = change_ring(
    EMPTY_RING, [Instance(id=f"w{n}", zone="east" if n % 2 else "", address=f"10.0.0.{n}:80") for n in range(5)]
)
DECODERS: list[tuple[Callable[[bytes], object], bytes]] = [
    (decode_rules, encode_rules(RULES)),
    (decode_ring, encode_ring(RING)),
    (decode_statistics, encode_statistics(PlacementStatistics(created_at_ms=5))),
    (decode_state, encode_state(PlacementState())),
]
ONE = pb.Instance(id="a", state="active")
NAMES = ["rules", "ring", "statistics", "state"]


def test_rules_and_ring_are_read_back_as_they_were() -> None:
    assert decode_rules(encode_rules(RULES)) == RULES
    assert decode_ring(encode_ring(RING)) == RING
    assert decode_ring(encode_ring(EMPTY_RING)) == EMPTY_RING


def test_equal_rules_are_equal_bytes() -> None:
    turned = replace(RULES, datasets=dict(reversed(RULES.datasets.items())))
    assert encode_rules(turned) == encode_rules(RULES)


def test_a_ring_from_the_store_decides_as_the_one_that_was_written(tmp_path: Path) -> None:
    store = SignedStore(LocalStore(tmp_path), ["key"])
    assert load_ring(store) is None
    publish_ring(store, RING)
    loaded = load_ring(store)
    assert loaded is not None
    before, after = Placer(RING, RULES, "east"), Placer(loaded, RULES, "east")
    for number in range(100):
        one, other = (placed.decide("a", f"s{number}", number) for placed in (before, after))
        assert (one.shard, one.instance) == (other.shard, other.instance)


@pytest.mark.parametrize(("decode", "whole"), DECODERS, ids=NAMES)
def test_documents_of_another_version_or_none_at_all_are_refused(
    decode: Callable[[bytes], object], whole: bytes
) -> None:
    decode(whole)
    for data in (b"", b"\xff", whole + b"\x07", b"\x0a\xff\xff\xff\xff\x0f"):
        with pytest.raises(BadDocument):
            decode(data)


@pytest.mark.parametrize(("decode", "whole"), DECODERS, ids=NAMES)
def test_damaged_documents_are_read_or_refused_and_nothing_else(
    decode: Callable[[bytes], object], whole: bytes
) -> None:
    draw = random.Random(len(whole))
    refused = 0
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            decode(bytes(damaged[: draw.randint(1, len(damaged))]))
        except BadDocument:
            refused += 1
    assert refused > 100


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode, _ in DECODERS:
        try:
            decode(data)
        except BadDocument:
            continue


@pytest.mark.parametrize(
    "message",
    [
        pb.Ring(
            format_version=1, shards=2, instances=[pb.Instance(id="a", state="active")], tables=[pb.Table(owners=[0])]
        ),
        pb.Ring(
            format_version=1, shards=1, instances=[pb.Instance(id="a", state="active")], tables=[pb.Table(owners=[9])]
        ),
        pb.Ring(format_version=1, instances=[pb.Instance(id="a", state="dancing")]),
        pb.Ring(format_version=1, instances=[ONE, ONE]),
        pb.Ring(format_version=1, shards=1 << 30),
        pb.Ring(
            format_version=1,
            shards=1,
            instances=[pb.Instance(id="a", zone="east", state="active")],
            tables=[pb.Table(zone="west", owners=[0])],
        ),
    ],
    ids=["torn table", "no such owner", "no such state", "twice", "too many shards", "other zone"],
)
def test_a_ring_that_contradicts_itself_is_refused(message: pb.Ring) -> None:
    with pytest.raises(BadDocument):
        decode_ring(message.SerializeToString())


def test_references_and_numbers_out_of_range_are_refused() -> None:
    limits = documents._limits_message(TenantLimits(), 0)
    rules = pb.PlacementRules(format_version=1, default_limits=limits, datasets=[pb.DatasetRule(tenant=5)])
    with pytest.raises(BadDocument, match="tenant 5"):
        decode_rules(rules.SerializeToString())
    statistics = pb.PlacementStatistics(format_version=1, tenants=["a"], shards=[pb.Shard(id=1)])
    statistics.datasets.append(pb.DatasetStatistics(shards=[0], usage=[1], std_dev=math.nan))
    with pytest.raises(BadDocument, match="std_dev"):
        decode_statistics(statistics.SerializeToString())
    statistics.datasets[0].usage.append(2)
    with pytest.raises(BadDocument, match="1 shards and 2 usages"):
        decode_statistics(statistics.SerializeToString())


def test_a_strategy_of_a_later_build_goes_by_fingerprint() -> None:
    message = pb.PlacementRules()
    message.ParseFromString(encode_rules(RULES))
    message.datasets[0].load_balancing = 9  # type: ignore[assignment]
    found = decode_rules(message.SerializeToString()).datasets["a", "checkout"]
    assert found.load_balancing is LoadBalancing.FINGERPRINT
