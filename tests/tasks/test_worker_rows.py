"""Rows W of the sheet: what a node does with its jobs. Those about tombstones and footers are in docs/decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from engine.core.errors import ChecksumMismatch
from engine.protocol.messages import Assignment, UpdateStatus
from tasks.leases import Pair
from tasks.merger import Outcome
from tasks.node import Node
from tests.tasks.doubles import CourierDouble, MergerDouble, ScheduleDouble
from tests.tasks.test_node import SETTINGS, Bench

A = ("job-a", "token-1")
SOURCES = ["01J2VJQPYDC160REPAD2VN88XN", "01J2VJQRGBK8YFWVV8K1MPRRWM"]


class Schedule(ScheduleDouble):
    """Its jobs have two blocks."""

    def _assign(self, pair: Pair) -> Assignment:
        return replace(super()._assign(pair), spec={"sources": SOURCES})


class Merger(MergerDouble):
    """Remembers the merges that were requested."""

    told: Mapping[str, dict[str, Any]] = {}

    def merge(self, batch: str, specs: Mapping[str, dict[str, Any]], **hooks: Any) -> Mapping[str, Outcome]:
        self.told = dict(specs)
        return super().merge(batch, specs, **hooks)


class RowBench(Bench):
    """A node between the two."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule, self.merger, self.courier = Schedule(), Merger(), CourierDouble()
        self.node = Node(SETTINGS, name="sand", service=self.schedule, courier=self.courier, merger=self.merger)
        self.courier.run = self.node.run


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = RowBench()
    bench.merger.gate.clear()
    bench.schedule.offer(A)
    bench.start()
    bench.merger.wait_entered()
    yield bench
    bench.close()


def after_two_polls(bench: Bench) -> tuple[Any, ...]:
    """Return what the node still reports after an answer to its report."""
    bench.schedule.wait_for_polls(2)
    return bench.schedule.requests[-1].updates


@pytest.mark.row("W1")
def test_both_blocks_are_merged_in_order_and_success_is_reported_once(bench: Bench) -> None:
    bench.merger.gate.set()
    bench.schedule.wait_for(lambda: bench.schedule.results)
    assert bench.merger.told == {"job-a": {"sources": SOURCES}}
    assert after_two_polls(bench) == ()
    told = [update for request in bench.schedule.requests for update in request.updates]
    assert [update.status for update in told].count(UpdateStatus.SUCCESS) == 1


@pytest.mark.row("W2")
def test_a_failed_merge_is_not_reported_as_success_and_the_job_is_dropped(bench: Bench) -> None:
    """Ours says why besides; the sheet's worker says nothing."""
    bench.merger.outcomes["job-a"] = ChecksumMismatch("symbols", 17, "crc differs")
    bench.merger.gate.set()
    bench.schedule.wait_for(lambda: bench.schedule.released)
    assert after_two_polls(bench) == ()
    assert bench.schedule.results == {}


@pytest.mark.row("W3", "W13")
def test_a_job_missing_from_the_answer_is_cancelled_and_not_reported(bench: Bench) -> None:
    bench.schedule.revoke(A)
    bench.schedule.wait_for(lambda: bench.merger.interrupted)
    bench.courier.join()
    assert after_two_polls(bench) == ()
    assert (bench.schedule.results, bench.schedule.released) == ({}, [])
