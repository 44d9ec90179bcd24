"""When a queue's blocks become a job, and why, in words; and that the words agree with the planner's own rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webadmin.lanes.profiles.admin.queue_labels import QueueFill, ready_badge, ready_reason

NOW_MS = 1_790_000_000_000
FILLING = QueueFill(
    now_ms=NOW_MS,
    block_count=7,
    byte_count=7 * 35_000,
    oldest_arrival_ms=NOW_MS - 12_000,
    ready_at_ms=NOW_MS + 24_001,
    blocks_max=20,
    age_seconds=36,
    bytes_max=0,
)


@pytest.mark.parametrize(
    ("change", "badge", "reason"),
    [
        ({}, "in 24 s", "7 of 20 blocks; ready when full or when the oldest has waited 36 s"),
        ({"ready_at_ms": NOW_MS + 1}, "in 1 s", "7 of 20 blocks; ready when full"),
        ({"block_count": 25, "ready_at_ms": NOW_MS - 3000}, ">ready<", "25 of 20 blocks: full"),
        ({"ready_at_ms": NOW_MS}, ">ready<", "7 of 20 blocks; the oldest has waited longer than 36 s"),
        (
            {"bytes_max": 200_000, "ready_at_ms": NOW_MS - 1},
            ">ready<",
            "239 KiB of 195 KiB: byte limit reached",
        ),
        ({"block_count": 0, "ready_at_ms": None, "oldest_arrival_ms": None}, "empty", "no blocks waiting"),
        ({"blocks_max": None, "age_seconds": None}, "no policy", "no level policy configured"),
    ],
)
def test_a_queue_shows_when_it_is_ready_and_why(change: dict[str, object], badge: str, reason: str) -> None:
    fill = replace(FILLING, **change)
    assert badge in ready_badge(fill).replace("\N{NO-BREAK SPACE}", " ")
    assert reason in ready_reason(fill).replace("\N{NO-BREAK SPACE}", " ")
