"""One sentence for every state, and no sentence without what would change it, unless nothing would."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.schedule.explain import (
    JobFacts,
    QueueFacts,
    explain_final,
    explain_job,
    explain_owned,
    explain_parked_block,
    explain_quarantined,
    explain_queued,
    explain_replaced,
)
from engine.schedule.model import JobState

QUEUE = QueueFacts(
    name="the queue of acme, shard 1, level 1",
    now_ms=1_000_000,
    block_count=7,
    byte_count=1,
    ready_at_ms=1_024_000,
    blocks_max=20,
    polling_workers=1,
)
JOB = JobFacts(
    name="j1",
    state=JobState.LEASED,
    now_ms=1_000_000,
    lease_expires_ms=1_009_000,
    worker="node-a",
    source_count=20,
    failures_max=3,
    polling_workers=1,
)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {},
            "Block B is queued: it waits in the queue of acme, shard 1, level 1 with 7 of 20 blocks; "
            "13 more blocks or in 24 s complete a job.",
        ),
        ({"block_count": 19}, "1 more block or in 24 s complete a job."),
        (
            {"partial_batch_bytes": 1 << 40},
            "with 7 of 20 blocks, few enough to be merged with those of the tenant's other shards; 13 more",
        ),
        (
            {"ready_at_ms": 940_000},
            "ready to be planned since 1 min; the next poll with free capacity assigns it in schedule order.",
        ),
        ({"ready_at_ms": 940_000, "polling_workers": 0}, "but no worker polls; it is planned after a node is started."),
        ({"ready_at_ms": 940_000, "is_schedule_full": True}, "the schedule is full; it is planned when a job"),
        (
            {"paused": ("tenant acme (pause)",)},
            "an operator paused tenant acme (pause); it is planned after the pause ends",
        ),
        ({"blocks_max": None}, "and no level policy is configured; it is planned after a policy is configured."),
    ],
)
def test_the_explanation_of_a_queued_block_names_what_its_queue_waits_for(
    change: dict[str, object], sentence: str
) -> None:
    assert sentence in explain_queued("Block B", replace(QUEUE, **change)).sentence


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"shard_count": 3},
            "it merges partial batches of 3 shards of the tenant; worker node-a runs it and must renew within",
        ),
        ({"is_rewrite": True}, "it rewrites a block without its deleted data; worker node-a runs it and must renew"),
        (
            {},
            "Job j1 is leased: worker node-a runs it and must renew within 9 s; its report ends the run; "
            "without a renewal the job goes to another worker.",
        ),
        ({"failures": 1, "last_error": "BadObject"}, "having failed once of 3 allowed (last: BadObject)"),
        ({"lease_expires_ms": 998_000}, "its lease expired 2 s ago; the next poll reassigns it."),
        ({"lease_expires_ms": 998_000, "failures": 3}, "having failed 3 times of 3 allowed; the next poll parks it."),
        ({"lease_expires_ms": 998_000, "polling_workers": 0}, "it is reassigned after a node is started."),
        ({"state": JobState.WAITING}, "Job j1 is waiting: no worker holds it; the next poll with free capacity"),
        ({"state": JobState.WAITING, "polling_workers": 0}, "no worker polls; it is assigned after a node is started."),
        ({"state": JobState.WAITING, "paused": ("everything (pause)",)}, "an operator paused everything (pause)"),
        ({"state": JobState.BLOCKED}, "it waits for other jobs; it is scheduled after they end."),
        (
            {"state": JobState.DONE, "result_ids": ("A", "B", "C"), "finished_at_ms": 940_000},
            "Job j1 is done: A and 2 others replaced its 20 sources 1 min ago.",
        ),
        (
            {"state": JobState.PARKED, "parked_reason": "failed too often."},
            "Job j1 is parked (evicted): failed too often; requeueing it retries it; returning its blocks",
        ),
        (
            {"state": JobState.PARKED, "parked_kind": "quarantined", "parked_reason": "damaged"},
            "releasing its block from quarantine retries it.",
        ),
        (
            {"state": JobState.DISSOLVED, "finished_at_ms": 940_000},
            "its blocks returned to queues or other jobs 1 min",
        ),
    ],
)
def test_the_explanation_of_a_job_names_its_lease_holder_and_what_ends_the_lease(
    change: dict[str, object], sentence: str
) -> None:
    assert sentence in explain_job(replace(JOB, **change)).sentence


def test_an_owned_block_shares_the_fate_of_its_job() -> None:
    owned = explain_owned("Block B", JOB)
    assert owned.state == "owned"
    assert "it is one of 20 sources of job j1, which is leased (worker node-a runs it" in owned.sentence
    parked = explain_owned("Block B", replace(JOB, state=JobState.PARKED, parked_reason="failed too often"))
    assert (parked.state, parked.next) == ("parked", explain_job(replace(JOB, state=JobState.PARKED)).next)


def test_blocks_outside_the_schedule_are_explained() -> None:
    assert explain_final("Block B", 3).sentence == ("Block B is final: level 3 is the highest level.")
    damaged = explain_quarantined(
        "Block B", cause="damaged", reason="BadObject in symbols at 7", attempts=2, since_ms=1
    )
    assert "found damaged 0 s ago after 2 attempts alone (BadObject in symbols at 7)" in damaged.sentence
    assert "; queries read the parts that are readable, and releasing it" in damaged.sentence
    missing = explain_quarantined("Block B", cause="missing", reason="ObjectNotFound", attempts=2, since_ms=1)
    assert missing.sentence.endswith("; queries skip it, and releasing it after a repair retries it.")
    assert "an operator's action returns it" in explain_parked_block("Block B", "it is odd").sentence
    waiting = explain_replaced("Block B", job="j", result_ids=["R"], deletes_in_ms=60_000, is_deleted=False)
    assert waiting.sentence == "Block B is replaced: job j merged it into R; its object is deleted in 1 min."
    due = explain_replaced("Block B", job="j", result_ids=[], deletes_in_ms=-1, is_deleted=False)
    assert "without a remaining result; its object is deleted with the next run" in due.sentence
    gone = explain_replaced("Block B", job="", result_ids=["R", "S"], deletes_in_ms=None, is_deleted=True)
    assert gone.sentence == "Block B is deleted: it was replaced into R and S, and its object is deleted."


@given(
    state=st.sampled_from(JobState),
    failures=st.integers(0, 5),
    lease=st.integers(0, 2_000_000),
    workers=st.integers(0, 2),
    paused=st.sampled_from([(), ("everything (pause)",)]),
)
def test_every_job_has_one_sentence_and_a_next_step_unless_it_is_over(
    state: JobState, failures: int, lease: int, workers: int, paused: tuple[str, ...]
) -> None:
    job = replace(JOB, state=state, failures=failures, lease_expires_ms=lease, polling_workers=workers, paused=paused)
    found = explain_job(job)
    assert found.sentence.endswith(".")
    assert "\n" not in found.sentence
    assert bool(found.next) == (state not in (JobState.DONE, JobState.DISSOLVED))
