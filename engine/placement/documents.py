"""Encoding of rules, statistics and ring as protobuf documents, for the object store and HTTP responses.

Decoders validate their input and raise BadDocument unless it is a document of the supported version.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from engine.placement.errors import BadDocument, LimitsRefused, RingRefused
from engine.placement.model import (
    SHARDS_MAX,
    DatasetRule,
    Instance,
    InstanceState,
    LoadBalancing,
    PlacementRules,
    TenantLimits,
)
from engine.placement.proto import placement_pb2 as pb
from engine.placement.ring import Ring
from engine.placement.statistics import DatasetStatistics, PlacementStatistics, ShardUsage

FORMAT_VERSION = 1
DOCUMENT_BYTES_MAX = 64 << 20
NS_PER_MS = 1_000_000

_Message = TypeVar("_Message", bound=Message)


def encode_rules(rules: PlacementRules) -> bytes:
    """Return the encoded rules; equal rules give equal bytes."""
    table = _Strings([*(tenant for tenant, _ in rules.datasets), *rules.tenants])
    message = pb.PlacementRules(
        tenants=table.strings,
        datasets=[
            rule_message(rule, table.position(tenant), dataset)
            for (tenant, dataset), rule in sorted(rules.datasets.items())
        ],
        created_at=rules.created_at_ms * NS_PER_MS,
        version=rules.version,
        format_version=FORMAT_VERSION,
        default_limits=_limits_message(rules.default_limits, 0),
        limits=[_limits_message(limits, table.position(tenant)) for tenant, limits in sorted(rules.tenants.items())],
    )
    return message.SerializeToString(deterministic=True)


def decode_rules(data: bytes) -> PlacementRules:
    """Return decoded rules. Raises BadDocument, which names the invalid entry."""
    message = parse(data, pb.PlacementRules(), "rules")
    check_format(message.format_version, "rules")
    return PlacementRules(
        version=message.version,
        created_at_ms=message.created_at // NS_PER_MS,
        datasets={
            (entry_at(message.tenants, rule.tenant, "tenant"), rule.name): rule_of(rule) for rule in message.datasets
        },
        tenants={entry_at(message.tenants, limits.tenant, "tenant"): _limits_of(limits) for limits in message.limits},
        default_limits=_limits_of(message.default_limits),
    )


def encode_statistics(statistics: PlacementStatistics) -> bytes:
    """Return the encoded statistics."""
    table = _Strings(one.tenant for one in statistics.datasets)
    shards: dict[tuple[int, str], int] = {}
    for found in statistics.datasets:
        for shard in found.shards:
            shards.setdefault((shard.shard, shard.owner), len(shards))
    message = pb.PlacementStatistics(
        tenants=table.strings,
        datasets=[
            pb.DatasetStatistics(
                tenant=table.position(found.tenant),
                name=found.dataset,
                shards=[shards[shard.shard, shard.owner] for shard in found.shards],
                usage=[shard.usage for shard in found.shards],
                std_dev=found.deviation,
            )
            for found in statistics.datasets
        ],
        shards=[pb.Shard(id=shard, owner=owner) for shard, owner in shards],
        created_at=statistics.created_at_ms * NS_PER_MS,
        format_version=FORMAT_VERSION,
    )
    return message.SerializeToString(deterministic=True)


def decode_statistics(data: bytes) -> PlacementStatistics:
    """Return decoded statistics. Raises BadDocument."""
    message = parse(data, pb.PlacementStatistics(), "statistics")
    check_format(message.format_version, "statistics")
    return PlacementStatistics(
        created_at_ms=message.created_at // NS_PER_MS,
        datasets=tuple(_statistics_of(found, message) for found in message.datasets),
    )


def encode_ring(ring: Ring) -> bytes:
    """Return the encoded ring."""
    numbers = {instance.id: number for number, instance in enumerate(ring.instances)}
    message = pb.Ring(
        version=ring.version,
        shards=ring.shards,
        instances=[
            pb.Instance(id=one.id, zone=one.zone, address=one.address, tokens=one.tokens, state=one.state)
            for one in ring.instances
        ],
        tables=[
            pb.Table(zone=zone, owners=[numbers[owner] for owner in ring.tables[zone]]) for zone in sorted(ring.tables)
        ],
        format_version=FORMAT_VERSION,
    )
    return message.SerializeToString(deterministic=True)


def decode_ring(data: bytes) -> Ring:
    """Return a decoded ring. Raises BadDocument, also if a table contradicts the ring."""
    message = parse(data, pb.Ring(), "ring")
    check_format(message.format_version, "ring")
    try:
        instances = tuple(
            Instance(id=one.id, zone=one.zone, address=one.address, tokens=one.tokens, state=InstanceState(one.state))
            for one in message.instances
        )
    except ValueError as error:
        raise BadDocument(f"ring: {error}") from error
    tables = {
        table.zone: tuple(entry_at(instances, owner, "instance").id for owner in table.owners)
        for table in message.tables
    }
    ring = Ring(version=message.version, shards=message.shards, instances=instances, tables=tables)
    try:
        ring.check()
    except RingRefused as error:
        raise BadDocument(f"ring: {error}") from error
    return ring


def parse(data: bytes, message: _Message, what: str) -> _Message:
    """Parse ``data`` into ``message`` and return it. Raises BadDocument."""
    if len(data) > DOCUMENT_BYTES_MAX:
        raise BadDocument(f"{what}: {len(data)} bytes exceed the maximum of {DOCUMENT_BYTES_MAX}")
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadDocument(f"{what}: not a protobuf message: {error}") from error
    return message


def check_format(version: int, what: str) -> None:
    """Raise BadDocument unless this build supports the version."""
    if version != FORMAT_VERSION:
        raise BadDocument(f"{what}: format version {version} is not supported; this build reads {FORMAT_VERSION}")


_Entry = TypeVar("_Entry")


def entry_at(table: Sequence[_Entry], position: int, what: str) -> _Entry:
    """Return an entry of a table. Raises BadDocument if the position is outside of it."""
    if position >= len(table):
        raise BadDocument(f"{what} {position} is not in the table of {len(table)} entries")
    return table[position]


def require_finite(value: float, what: str) -> float:
    """Return ``value``. Raises BadDocument if it is infinite or not a number."""
    if not math.isfinite(value):
        raise BadDocument(f"{what} is {value}, expected a finite number")
    return value


class _Strings:
    """A sorted table of distinct strings."""

    def __init__(self, strings: Iterable[str]) -> None:
        self.strings = sorted(set(strings))
        self._positions = {string: position for position, string in enumerate(self.strings)}

    def position(self, string: str) -> int:
        return self._positions[string]


def rule_message(rule: DatasetRule, tenant: int, dataset: str) -> pb.DatasetRule:
    """Return the message of a rule."""
    return pb.DatasetRule(
        tenant=tenant,
        name=dataset,
        tenant_shard_limit=rule.tenant_shards,
        dataset_shard_limit=rule.dataset_shards,
        load_balancing=pb.LoadBalancing.ValueType(rule.load_balancing),
        shards=rule.shards,
        updated_at=rule.updated_at_ms,
    )


def rule_of(message: pb.DatasetRule) -> DatasetRule:
    """Return the rule of a message, with limits clamped to the largest ring."""
    return DatasetRule(
        tenant_shards=min(message.tenant_shard_limit, SHARDS_MAX),
        dataset_shards=min(message.dataset_shard_limit, SHARDS_MAX),
        load_balancing=choice_of(message.load_balancing),
        shards=tuple(message.shards),
        updated_at_ms=message.updated_at,
    )


def choice_of(value: int) -> LoadBalancing:
    """Return a load balancing mode; modes unknown to this build are FINGERPRINT."""
    return LoadBalancing(value) if value in set(LoadBalancing) else LoadBalancing.FINGERPRINT


def _limits_message(limits: TenantLimits, tenant: int) -> pb.Limits:
    return pb.Limits(
        tenant=tenant,
        tenant_shards=limits.tenant_shards,
        default_dataset_shards=limits.default_dataset_shards,
        dataset_shards_min=limits.dataset_shards_min,
        dataset_shards_max=limits.dataset_shards_max,
        load_balancing=pb.LoadBalancing.ValueType(limits.load_balancing),
        unit_bytes=limits.unit_bytes,
        burst_window_s=limits.burst_window_s,
        decay_window_s=limits.decay_window_s,
        may_leave_zone=limits.may_leave_zone,
    )


def _limits_of(message: pb.Limits) -> TenantLimits:
    limits = TenantLimits(
        tenant_shards=message.tenant_shards,
        default_dataset_shards=message.default_dataset_shards,
        dataset_shards_min=message.dataset_shards_min,
        dataset_shards_max=message.dataset_shards_max,
        load_balancing=choice_of(message.load_balancing),
        unit_bytes=message.unit_bytes,
        burst_window_s=message.burst_window_s,
        decay_window_s=message.decay_window_s,
        may_leave_zone=message.may_leave_zone,
    )
    try:
        limits.check()
    except LimitsRefused as error:
        raise BadDocument(f"rules: {error}") from error
    return limits


def _statistics_of(found: pb.DatasetStatistics, message: pb.PlacementStatistics) -> DatasetStatistics:
    if len(found.shards) != len(found.usage):
        raise BadDocument(f"dataset {found.name!r} has {len(found.shards)} shards and {len(found.usage)} usages")
    shards = [entry_at(message.shards, position, "shard") for position in found.shards]
    return DatasetStatistics(
        tenant=entry_at(message.tenants, found.tenant, "tenant"),
        dataset=found.name,
        shards=tuple(
            ShardUsage(shard=shard.id, owner=shard.owner, usage=usage)
            for shard, usage in zip(shards, found.usage, strict=True)
        ),
        deviation=require_finite(found.std_dev, "std_dev"),
    )
