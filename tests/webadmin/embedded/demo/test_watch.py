"""The fix-point: no block has anything to come; none is overlooked on its way from queue to job to result."""

from __future__ import annotations

import pytest

from engine.protocol.messages import FailureReason
from tests.webadmin.service import Service
from webadmin.base.access.models import AuditEntry
from webadmin.embedded.demo.figures import totals_by_level
from webadmin.embedded.demo.policies import AGE_SECONDS, pause_compaction, resume_compaction, shorten_ages
from webadmin.embedded.demo.watch import (
    CompactionStalled,
    Progress,
    live_blocks,
    live_count,
    read_progress,
    wait_for_the_fix_point,
)
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.schedule.models import Limits
from webadmin.schedule.operation_models import Pause

REASON = FailureReason(error_class="ChecksumMismatch", message="stored 1, found 2")


def let_everything_age(service: Service) -> None:
    service.clock.advance(10)


def test_queued_and_leased_blocks_are_unsettled_until_their_results_are_final(service: Service) -> None:
    shorten_ages()
    service.add_segments(3)
    assert read_progress().unsettled == 3
    worker = service.worker()
    for level in range(3):
        let_everything_age(service)
        (spec,) = worker.take()
        assert spec.level == level
        assert read_progress().running == 1
        assert read_progress().unsettled == len(spec.sources)
        worker.poll(worker.success(spec.job), capacity=0)
    end = wait_for_the_fix_point(lambda now: None, silence_seconds=1)
    assert (end.unsettled, end.live, end.done) == (0, 1, 3)
    assert list(totals_by_level(live_blocks())) == [3]


def test_a_parked_job_has_nothing_to_come_and_is_counted(service: Service) -> None:
    Limits.objects.update(failures_max=1)
    shorten_ages()
    service.add_segments(1)
    let_everything_age(service)
    worker = service.worker()
    for _ in range(2):
        (spec,) = worker.take()
        worker.poll(worker.released(spec.job, REASON), capacity=0)
    end = wait_for_the_fix_point(lambda now: None, silence_seconds=1)
    assert (end.unsettled, end.live, end.parked_jobs) == (0, 1, 1)
    assert "1 parked" in end.text


def test_every_change_is_reported_once(service: Service) -> None:
    seen: list[Progress] = []
    wait_for_the_fix_point(seen.append, silence_seconds=1)
    assert seen == [read_progress()]


def test_a_compaction_that_stands_still_is_an_error_not_an_endless_wait(service: Service) -> None:
    service.add_segments(2)
    with pytest.raises(CompactionStalled, match="2 live objects, queued L0:2"):
        wait_for_the_fix_point(lambda now: None, silence_seconds=0.3)


def test_while_it_is_paused_nothing_is_handed_out_and_everything_waits_for_the_end_of_the_pause(
    service: Service,
) -> None:
    shorten_ages()
    pause_compaction()
    service.add_segments(3)
    let_everything_age(service)
    worker = service.worker()
    assert worker.take() == []
    assert (read_progress().unsettled, live_count()) == (3, 3)
    resume_compaction()
    (spec,) = worker.take()
    assert len(spec.sources) == 3
    kept = Pause.objects.get()
    assert "before anything is compacted" in kept.why
    assert kept.ended_by == kept.actor == "manage.py demo"


def test_shortened_ages_are_rows_of_this_database_and_in_the_audit_log(service: Service) -> None:
    changed = shorten_ages()
    assert {level: now for level, (_, now) in changed.items()} == AGE_SECONDS
    assert changed[2][0] == 10_800
    assert dict(LevelPolicy.objects.values_list("level", "age_seconds")) == AGE_SECONDS
    assert AuditEntry.objects.get(action="shorten_ages").detail["0"] == list(changed[0])
