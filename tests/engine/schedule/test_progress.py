"""Rates, outlooks and the work that a backlog means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.schedule.progress import (
    ASSUMED_SECONDS_PER_MIB,
    MIB,
    Flow,
    Outlook,
    clearing,
    count_text,
    seconds_text,
    work_seconds,
)


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "block", "1 block"),
        (2, "block", "2 blocks"),
        (0, "branch", "0 branches"),
        (2, "repository", "2 repositories"),
    ],
)
def test_counts_have_the_right_form_of_their_noun(count: int, noun: str, text: str) -> None:
    assert count_text(count, noun) == text


@pytest.mark.parametrize(
    ("due", "flow", "outlook", "words"),
    [
        (0, Flow(seconds=60, arrived_blocks=9), Outlook.CLEAR, "nothing due"),
        (5, Flow(seconds=0), Outlook.UNKNOWN, "not counted yet"),
        (5, Flow(seconds=60, arrived_blocks=9), Outlook.NEVER, "never at this rate"),
        (5, Flow(seconds=60), Outlook.NEVER, "never at this rate"),
        (60, Flow(seconds=60, arrived_blocks=60, drained_blocks=120), Outlook.SHRINKS, "in 1 min"),
        (7200, Flow(seconds=60, drained_blocks=60), Outlook.SHRINKS, "in 2 h"),
    ],
)
def test_a_backlog_has_an_outlook(due: int, flow: Flow, outlook: Outlook, words: str) -> None:
    found = clearing(due, flow)
    assert (found.outlook, found.words()) == (outlook, words)


@given(due=st.integers(1, 10**9), arrived=st.integers(0, 10**9), drained=st.integers(0, 10**9), more=st.integers(1, 99))
def test_a_larger_backlog_never_clears_sooner(due: int, arrived: int, drained: int, more: int) -> None:
    flow = Flow(seconds=60, arrived_blocks=arrived, drained_blocks=drained)
    small, large = clearing(due, flow), clearing(due + more, flow)
    assert small.outlook is large.outlook
    if small.seconds is not None:
        assert large.seconds is not None
        assert 0 <= small.seconds <= large.seconds
    assert (small.seconds is None) == (drained <= arrived)


def test_work_is_measured_by_what_runs_cost_and_assumed_before_the_first() -> None:
    measured = Flow(seconds=900, drained_bytes=10 * MIB, run_ms=20_000)
    assert work_seconds(5 * MIB, measured) == pytest.approx(10.0)
    assert work_seconds(4 * MIB, Flow(seconds=900)) == pytest.approx(4 * ASSUMED_SECONDS_PER_MIB)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.4, "0 s"), (61, "1 min 1 s"), (3600, "1 h"), (90_061, "1 d 1 h"), (86_460, "1 d"), (-5, "0 s")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
