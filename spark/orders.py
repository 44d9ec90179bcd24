"""What executors are told to do: units of work, gathered into orders of about equal weight.

A unit is one dataset of one output of one job. An order is what one Spark task does: many small units, or one large
one. It travels as one JSON text with the specifications of the jobs it has units of; the executor plans them again,
because planning is a pure function and the plan is larger than the specification.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from engine.lanes.profiles.jobs import ProfileMergeSpec
from spark.frames import PARTITIONS_MAX

ORDER_BYTES = 8 << 20
"""Source bytes that are worth a task of their own: about a tenth of a second of merging against ten milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Dataset ``dataset`` of output ``output`` of a job, both counted from 0; ``size`` is its source bytes."""

    job: str
    output: int
    dataset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one task does, and with what: ``inline_bytes`` is how much of a unit's sections may come back by Spark."""

    specs: tuple[ProfileMergeSpec, ...]
    units: tuple[Unit, ...]
    store_url: str
    inline_bytes: int

    def to_bytes(self) -> bytes:
        """Return the order as JSON."""
        return json.dumps(
            {
                "specs": [spec.to_json() for spec in self.specs],
                "units": [[unit.job, unit.output, unit.dataset, unit.size] for unit in self.units],
                "store_url": self.store_url,
                "inline_bytes": self.inline_bytes,
            }
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Order:
        """Read what ``to_bytes`` wrote."""
        told = json.loads(data)
        return cls(
            specs=tuple(ProfileMergeSpec.from_json(spec) for spec in told["specs"]),
            units=tuple(
                Unit(job=job, output=output, dataset=dataset, size=size) for job, output, dataset, size in told["units"]
            ),
            store_url=told["store_url"],
            inline_bytes=told["inline_bytes"],
        )


def gather(
    specs: Sequence[ProfileMergeSpec], units: Sequence[Unit], *, store_url: str, inline_bytes: int, parallelism: int
) -> list[Order]:
    """Make orders of units: the heaviest first, and no more of them than keep ``parallelism`` cores evenly busy."""
    by_job = {spec.job: spec for spec in specs}
    orders = []
    for share in _shares(units, _order_count(units, parallelism)):
        jobs = dict.fromkeys(unit.job for unit in share)
        orders.append(
            Order(
                specs=tuple(by_job[job] for job in jobs),
                units=tuple(share),
                store_url=store_url,
                inline_bytes=inline_bytes,
            )
        )
    return orders


def table_of(orders: Sequence[Order]) -> pa.Table:
    """Return the frame of orders, one row each."""
    return pa.table({"order": pa.array([order.to_bytes() for order in orders], pa.binary())})


def _order_count(units: Sequence[Unit], parallelism: int) -> int:
    by_weight = -(-sum(unit.size for unit in units) // ORDER_BYTES)
    return min(len(units), max(parallelism, by_weight), PARTITIONS_MAX)


def _shares(units: Sequence[Unit], count: int) -> list[list[Unit]]:
    """Deal the units, largest first, each to the share that is lightest so far; return the heaviest share first."""
    lightest = [(0, number) for number in range(count)]
    shares: list[list[Unit]] = [[] for _ in range(count)]
    for unit in sorted(units, key=lambda unit: unit.size, reverse=True):
        weight, number = heapq.heappop(lightest)
        shares[number].append(unit)
        # A unit of no bytes is work, too: without the 1 all such units would go to one share.
        heapq.heappush(lightest, (weight + unit.size + 1, number))
    weights = {number: weight for weight, number in lightest}
    return [shares[number] for number in sorted(range(count), key=lambda number: -weights[number])]
