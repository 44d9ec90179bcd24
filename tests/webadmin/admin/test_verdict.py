"""What the front page says first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webadmin.adminkit.verdict import Standing, verdict

IDLE = Standing(
    block_count=40,
    parked_blocks=0,
    ready_queues=0,
    waiting_queues=0,
    next_ready_in_ms=None,
    running_jobs=0,
    waiting_jobs=0,
    expired_jobs=0,
    parked_jobs=0,
    parked_sources=0,
    live_jobs=0,
    queue_max=100,
    polling_workers=1,
    known_workers=1,
)


@pytest.mark.parametrize(
    ("change", "tones", "words"),
    [
        ({}, ["good"], "Nothing to do: no queue waits and no job runs."),
        ({"block_count": 0}, ["quiet"], "Nothing to do: the index holds no blocks yet."),
        ({"block_count": 0, "buckets": 2}, ["good"], "Nothing to do: no job runs for 2 buckets of Prometheus blocks."),
        ({"block_count": 0, "buckets": 1, "compactions_ahead": 3}, ["good"], "3 compactions of buckets ahead, no job"),
        ({"buckets": 1, "silent_buckets": 1}, ["bad", "good"], "1 bucket of Prometheus blocks not read"),
        ({"buckets": 1, "failing_writes": 2}, ["bad", "good"], "2 writes to buckets refused"),
        ({"buckets": 1, "kept_out_blocks": 1}, ["warn", "good"], "1 block of buckets quarantined"),
        ({"buckets": 1, "refused_tenants": 2}, ["warn", "good"], "2 tenants of buckets not planned"),
        ({"block_count": 0, "tables": 1}, ["good"], "Nothing to do: no job runs for 1 table."),
        ({"tables": 3, "refused_tables": 2}, ["warn", "good"], "2 tables not planned, with the reason."),
        ({"tables": 1, "unpublished_tables": 1}, ["bad", "good"], "1 table with readers behind: the manifest cannot"),
        ({"tables": 1, "quarantined_chunks": 2}, ["warn", "good"], "2 chunks of tables quarantined after failures"),
        (
            {"not_counting": "progress was last counted 4 min ago"},
            ["bad", "good"],
            "Beat or control does not run, so nothing is planned or cleaned up: progress was last counted 4 min ago.",
        ),
        (
            {"failing_writers": 2, "store_error": "put 'segments/1': no space"},
            ["bad", "good"],
            "Pushes are refused: 2 segment writers could not store segments at the last attempt: put 'segments/1'",
        ),
        ({"waiting_letters": 2}, ["warn", "good"], "2 dead letters wait: written, and not in the index yet."),
        (
            {"letters_recovered_ms_ago": 40_000},
            ["quiet", "good"],
            "Dead letters recovered 40 s ago: pushes that writers",
        ),
        ({"tables": 1, "bad_files": 1}, ["warn", "good"], "1 file of tables quarantined as unreadable"),
        ({"waiting_queues": 3, "next_ready_in_ms": 24_000}, ["good"], "3 queues filling; the next is ready in 24 s."),
        ({"running_jobs": 2, "live_jobs": 2}, ["busy"], "Work continues: 2 jobs running."),
        ({"ready_queues": 1}, ["busy"], "Waiting for a worker with room: 1 queue ready."),
        ({"ready_queues": 1, "polling_workers": 0}, ["bad", "busy"], "no worker polls: 1 worker silent."),
        (
            {"ready_queues": 1, "polling_workers": 0, "known_workers": 0},
            ["bad", "busy"],
            "no worker polls: none was ever seen.",
        ),
        ({"parked_jobs": 1, "parked_sources": 20}, ["bad", "good"], "1 job parked; keeps 20 blocks until someone"),
        ({"parked_jobs": 2, "parked_sources": 1}, ["bad", "good"], "2 jobs parked; keep 1 block until someone"),
        ({"parked_blocks": 4}, ["warn", "good"], "4 blocks parked: not compacted, still read by queries."),
        ({"running_jobs": 1, "expired_jobs": 1, "live_jobs": 1}, ["warn", "busy"], "The lease of 1 job is over"),
        ({"running_jobs": 2, "expired_jobs": 2, "live_jobs": 2}, ["warn", "busy"], "The leases of 2 jobs are over"),
        (
            {"running_jobs": 3, "expired_jobs": 1},
            ["warn", "busy"],
            "Work continues: 2 jobs running, 1 job left behind.",
        ),
        ({"running_jobs": 3, "polling_workers": 0}, ["bad", "busy"], "with room: 3 jobs left behind."),
        ({"live_jobs": 100, "running_jobs": 100}, ["warn", "busy"], "The schedule is full: 100 jobs not done"),
        ({"live_jobs": 100, "running_jobs": 100, "queue_max": 0}, ["busy"], "100 jobs running"),
    ],
)
def test_the_verdict_names_trouble_first_and_always_ends_with_the_course(
    change: dict[str, int], tones: list[str], words: str
) -> None:
    notices = verdict(replace(IDLE, **change))
    assert [notice.tone for notice in notices] == tones
    assert words in " / ".join(notice.text for notice in notices).replace("\N{NO-BREAK SPACE}", " ")


def test_every_trouble_leads_somewhere() -> None:
    worst = replace(IDLE, parked_jobs=1, parked_blocks=1, ready_queues=1, polling_workers=0, live_jobs=100)
    worst = replace(worst, silent_buckets=1, failing_writes=1, kept_out_blocks=1, refused_tenants=1)
    worst = replace(worst, refused_tables=1, unpublished_tables=1, quarantined_chunks=1, bad_files=1)
    troubles = verdict(worst)[:-1]
    assert len(troubles) == 12
    assert all(notice.place for notice in troubles)
