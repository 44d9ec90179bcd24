"""Encoding of the state from which rules are built, so that another process can continue the computation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.placement.allocator import Allocation, Need
from engine.placement.build_rules import DatasetState
from engine.placement.documents import (
    FORMAT_VERSION,
    check_format,
    choice_of,
    entry_at,
    parse,
    require_finite,
    rule_message,
    rule_of,
)
from engine.placement.load_balancing import Balance
from engine.placement.model import SHARDS_MAX, DatasetKey
from engine.placement.proto import placement_pb2 as pb
from engine.placement.rate import RateEstimator
from engine.placement.statistics import CounterKey, Deviation, UsageAccumulator


@dataclass(slots=True)
class PlacementState:
    """The accumulated usage and the states of datasets."""

    usage: UsageAccumulator = field(default_factory=UsageAccumulator)
    datasets: Mapping[DatasetKey, DatasetState] = field(default_factory=dict)


def encode_state(state: PlacementState) -> bytes:
    """Return the encoded state."""
    keys = sorted({*state.datasets, *state.usage.deviations})
    tenants = sorted({key[0] for key in keys} | {key[0] for key in state.usage.counters})
    owners = sorted({key[3] for key in state.usage.counters})
    tenant_at = {tenant: position for position, tenant in enumerate(tenants)}
    owner_at = {owner: position for position, owner in enumerate(owners)}
    message = pb.PlacementState(
        tenants=tenants,
        owners=owners,
        counters=[
            _counter_message(key, state.usage.counters[key], tenant_at[key[0]], owner_at[key[3]])
            for key in sorted(state.usage.counters)
        ],
        datasets=[
            _dataset_message(key, state.datasets.get(key), state.usage.deviations.get(key), tenant_at[key[0]])
            for key in keys
        ],
        half_life_s=state.usage.half_life_s,
        retention_s=state.usage.retention_s,
        format_version=FORMAT_VERSION,
    )
    return message.SerializeToString(deterministic=True)


def decode_state(data: bytes) -> PlacementState:
    """Return a decoded state. Raises BadDocument."""
    message = parse(data, pb.PlacementState(), "state")
    check_format(message.format_version, "state")
    usage = UsageAccumulator(
        require_finite(message.half_life_s, "half-life"), require_finite(message.retention_s, "retention")
    )
    for counter in message.counters:
        tenant, owner = (
            entry_at(message.tenants, counter.tenant, "tenant"),
            entry_at(message.owners, counter.owner, "owner"),
        )
        usage.counters[tenant, counter.name, counter.shard, owner] = RateEstimator(
            usage.half_life_s,
            require_finite(counter.last_s, "time"),
            require_finite(counter.pending, "amount"),
            require_finite(counter.rate, "rate"),
        )
    datasets = {}
    for found in message.datasets:
        key = (entry_at(message.tenants, found.tenant, "tenant"), found.name)
        if found.HasField("deviation"):
            level = Deviation(
                require_finite(found.deviation, "deviation"), require_finite(found.deviation_at_s, "time")
            )
            usage.deviations[key] = level
        if found.HasField("rule"):
            datasets[key] = _state_of(found)
    return PlacementState(usage, datasets)


def _counter_message(key: CounterKey, counter: RateEstimator, tenant: int, owner: int) -> pb.Counter:
    return pb.Counter(
        tenant=tenant,
        name=key[1],
        shard=key[2],
        owner=owner,
        last_s=counter.last_s,
        pending=counter.pending,
        rate=counter.rate,
    )


def _dataset_message(
    key: DatasetKey, state: DatasetState | None, deviation: Deviation | None, tenant: int
) -> pb.DatasetState:
    message = pb.DatasetState(tenant=tenant, name=key[1])
    if deviation is not None:
        message.deviation, message.deviation_at_s = deviation.level, deviation.at_s
    if state is None:
        return message
    message.rule.CopyFrom(rule_message(state.rule, tenant, key[1]))
    message.target, message.boost = state.allocation.target, state.allocation.boost
    message.stretch = state.allocation.stretch
    message.needs.extend(
        pb.Need(bucket=need.bucket, shards=need.shards, at_s=need.at_s) for need in state.allocation.needs
    )
    message.choice = pb.LoadBalancing.ValueType(state.balance.choice)
    message.since_s, message.hold_s = state.balance.since_s, state.balance.hold_s
    if state.allocation.risen_at_s is not None:
        message.risen_at_s = state.allocation.risen_at_s
    if state.balance.tried_at_s is not None:
        message.tried_at_s = state.balance.tried_at_s
    return message


def _state_of(message: pb.DatasetState) -> DatasetState:
    allocation = Allocation(
        target=min(message.target, SHARDS_MAX),
        risen_at_s=require_finite(message.risen_at_s, "time") if message.HasField("risen_at_s") else None,
        boost=message.boost,
        stretch=message.stretch,
        needs=tuple(
            Need(bucket=need.bucket, shards=need.shards, at_s=require_finite(need.at_s, "time"))
            for need in message.needs
        ),
    )
    balance = Balance(
        choice=choice_of(message.choice),
        since_s=require_finite(message.since_s, "time"),
        hold_s=require_finite(message.hold_s, "hold"),
        tried_at_s=require_finite(message.tried_at_s, "time") if message.HasField("tried_at_s") else None,
    )
    return DatasetState(rule=rule_of(message.rule), allocation=allocation, balance=balance)
