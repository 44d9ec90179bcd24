"""Work items of executors: units grouped into items of about equal size.

A unit is one dataset of one output of one job. A work item is the input of one Spark task: many small units, or one
large one. It is sent as JSON with the specifications of the jobs of its units; the executor plans them again, because
planning is a pure function and the plan is larger than the specification.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from engine.lanes.profiles.jobs import ProfileMergeSpec
from spark.frames import PARTITIONS_MAX

WORK_ITEM_BYTES = 8 << 20
"""Source bytes per task: about 100 ms of merging, against about 10 ms to start a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Dataset ``dataset`` of output ``output`` of a job, both counted from 0; ``size`` is its source bytes."""

    job: str
    output: int
    dataset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """Input of one task. ``inline_bytes`` is the maximum size of the sections of a unit in its result rows."""

    specs: tuple[ProfileMergeSpec, ...]
    units: tuple[Unit, ...]
    store_url: str
    inline_bytes: int

    def to_bytes(self) -> bytes:
        """Return the work item as JSON."""
        return json.dumps(
            {
                "specs": [spec.to_json() for spec in self.specs],
                "units": [[unit.job, unit.output, unit.dataset, unit.size] for unit in self.units],
                "store_url": self.store_url,
                "inline_bytes": self.inline_bytes,
            }
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> WorkItem:
        """Read what ``to_bytes`` wrote."""
        fields = json.loads(data)
        return cls(
            specs=tuple(ProfileMergeSpec.from_json(spec) for spec in fields["specs"]),
            units=tuple(
                Unit(job=job, output=output, dataset=dataset, size=size)
                for job, output, dataset, size in fields["units"]
            ),
            store_url=fields["store_url"],
            inline_bytes=fields["inline_bytes"],
        )


def make_work_items(
    specs: Sequence[ProfileMergeSpec], units: Sequence[Unit], *, store_url: str, inline_bytes: int, parallelism: int
) -> list[WorkItem]:
    """Group units into work items, largest first, and no more than keep ``parallelism`` cores evenly busy."""
    by_job = {spec.job: spec for spec in specs}
    work_items = []
    for share in _shares(units, _work_item_count(units, parallelism)):
        jobs = dict.fromkeys(unit.job for unit in share)
        work_items.append(
            WorkItem(
                specs=tuple(by_job[job] for job in jobs),
                units=tuple(share),
                store_url=store_url,
                inline_bytes=inline_bytes,
            )
        )
    return work_items


def work_item_table(work_items: Sequence[WorkItem]) -> pa.Table:
    """Return the table of work items, one row each."""
    return pa.table({"work_item": pa.array([work_item.to_bytes() for work_item in work_items], pa.binary())})


def _work_item_count(units: Sequence[Unit], parallelism: int) -> int:
    by_weight = -(-sum(unit.size for unit in units) // WORK_ITEM_BYTES)
    return min(len(units), max(parallelism, by_weight), PARTITIONS_MAX)


def _shares(units: Sequence[Unit], count: int) -> list[list[Unit]]:
    """Assign each unit, largest first, to the smallest share so far; return the largest share first."""
    lightest = [(0, number) for number in range(count)]
    shares: list[list[Unit]] = [[] for _ in range(count)]
    for unit in sorted(units, key=lambda unit: unit.size, reverse=True):
        weight, number = heapq.heappop(lightest)
        shares[number].append(unit)
        # An empty unit is work too: without the 1, all empty units would be in one share.
        heapq.heappush(lightest, (weight + unit.size + 1, number))
    weights = {number: weight for weight, number in lightest}
    return [shares[number] for number in sorted(range(count), key=lambda number: -weights[number])]
