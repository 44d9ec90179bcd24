"""What the front page says first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.webadmin.progress.test_health import IDLE
from webadmin.adminkit.overview import LaneOverview
from webadmin.adminkit.sections import Notice
from webadmin.console.front_page_notices import FrontPageFacts, front_page_notices

LANES = [LaneOverview(holds="40 blocks"), LaneOverview(), LaneOverview(holds="2 buckets")]
NO_OTHERS = FrontPageFacts()


@pytest.mark.parametrize(
    ("change", "tones", "words"),
    [
        ({}, ["good"], "Nothing to do: no queue waits and no job runs for 40 blocks, 2 buckets."),
        (
            {"counted_ms_ago": 4 * 60_000},
            ["bad", "good"],
            "Beat or control does not run, so nothing is planned or cleaned up: progress was last counted 4 min ago.",
        ),
        (
            {"slow_database": "the database takes 40 ms for an empty query", "due_jobs": 1, "leased_jobs": 1},
            ["warn", "busy"],
            "Work is slow: the database takes 40 ms for an empty query.",
        ),
        ({"due_jobs": 2, "leased_jobs": 2, "live_jobs": 2}, ["busy"], "Work continues: 2 jobs running."),
        ({"due_queues": 1}, ["busy"], "Waiting for a worker with room: 1 queue ready."),
        ({"due_queues": 1, "polling_workers": 0}, ["bad", "busy"], "no worker polls: 1 worker silent."),
        (
            {"due_queues": 1, "polling_workers": 0, "known_workers": 0},
            ["bad", "busy"],
            "no worker polls: none was ever seen.",
        ),
        ({"parked_jobs": 1, "parked_blocks": 20}, ["bad", "good"], "1 job parked; keeps 20 blocks until an operator"),
        ({"parked_jobs": 2, "parked_blocks": 1}, ["bad", "good"], "2 jobs parked; keep 1 block until an operator"),
        (
            {"due_jobs": 1, "leased_jobs": 1, "expired_jobs": 1, "live_jobs": 1},
            ["warn", "busy"],
            "The lease of 1 job is over",
        ),
        (
            {"due_jobs": 2, "leased_jobs": 2, "expired_jobs": 2, "live_jobs": 2},
            ["warn", "busy"],
            "The leases of 2 jobs are over",
        ),
        (
            {"due_jobs": 3, "leased_jobs": 3, "expired_jobs": 1},
            ["warn", "busy"],
            "Work continues: 2 jobs running, 1 job left behind.",
        ),
        ({"due_jobs": 3, "leased_jobs": 3, "polling_workers": 0}, ["bad", "busy"], "with room: 3 jobs left behind."),
        (
            {"live_jobs": 100, "due_jobs": 1, "leased_jobs": 100},
            ["warn", "busy"],
            "The schedule is full: 100 jobs not done",
        ),
        ({"live_jobs": 100, "due_jobs": 1, "leased_jobs": 100, "queue_max": 0}, ["busy"], "100 jobs running"),
    ],
)
def test_the_notices_name_trouble_first_and_always_ends_with_the_course(
    change: dict[str, int], tones: list[str], words: str
) -> None:
    notices = front_page_notices(replace(IDLE, **change), NO_OTHERS, LANES)
    assert [notice.tone for notice in notices] == tones
    assert words in " / ".join(notice.text for notice in notices).replace("\N{NO-BREAK SPACE}", " ")


def test_lanes_add_their_notices_and_what_is_ahead() -> None:
    told = [Notice(tone="warn", text="1 quarantined file."), Notice(tone="bad", text="1 table with readers behind.")]
    lanes = [LaneOverview(notices=told, holds="1 table"), LaneOverview(ahead="3 queues filling", holds="2 blocks")]
    parked = replace(IDLE, parked_jobs=1, failing_jobs="2 jobs fail")
    texts = [notice.text for notice in front_page_notices(parked, NO_OTHERS, lanes)]
    assert "job parked; keeps" in texts[0]
    assert texts[1:] == [
        "1 table with readers behind.",
        "2 jobs fail.",
        "1 quarantined file.",
        "Nothing to do now: 3 queues filling.",
    ]
    assert front_page_notices(IDLE, NO_OTHERS, [LaneOverview()]) == [
        Notice(tone="quiet", text="Nothing to do: there is no data yet.")
    ]


def test_every_trouble_leads_somewhere() -> None:
    worst = replace(IDLE, parked_jobs=1, due_queues=1, polling_workers=0, live_jobs=100, failing_jobs="2 jobs fail")
    worst = replace(worst, unsafe_database="fsync is off", log_behind="the log is behind", slow_database="slow")
    worst = replace(worst, broken_builds=["build 1 fails"], isolation_stop="4 of 5", counted_ms_ago=None)
    others = FrontPageFacts(expiring_credentials=1, failing_writers=2, store_error="put 'segments/1': no space")
    troubles = front_page_notices(replace(worst, paused=["lane x"]), others, LANES)[:-1]
    assert len(troubles) == 13
    assert all(notice.address.startswith("/admin/") for notice in troubles)
    told = " / ".join(notice.text for notice in troubles).replace("\N{NO-BREAK SPACE}", " ")
    assert "2 segment writers could not store segments at the last attempt: put 'segments/1': no space." in told
