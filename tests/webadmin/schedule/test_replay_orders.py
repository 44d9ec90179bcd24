"""Orders in the log: replaying them leads to the state of the tables (invariant 16), applied once or twice."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from engine.schedule.errors import EntryUnknown
from engine.schedule.limits import EVERYTHING, LimitName
from engine.storage import open_store
from tests.log_replay.actions import apply_order
from tests.log_replay.replay import apply_entry
from tests.log_replay.state import ReplayedState
from tests.webadmin.schedule.test_replay import assert_equal_to_tables, log, replayed
from tests.webadmin.service import REASON, FakeWorker, Service, check_invariants
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.lanes.profiles.services.isolate_jobs import isolate
from webadmin.lanes.profiles.services.quarantine_blocks import release
from webadmin.schedule.models import Job
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.adjust_jobs import pin, reset_failures, unpin
from webadmin.schedule.services.cancel_jobs import cancel
from webadmin.schedule.services.change_limit import change_limit
from webadmin.schedule.services.pause_schedule import pause, resume
from webadmin.schedule.services.requeue_jobs import requeue
from webadmin.schedule.services.return_job_blocks import return_job_blocks

ALL = JobFilter(everything=True)
CONTEXT = ActionContext(actor="operator", why="to see it replayed")


def fail_all(worker: FakeWorker, bad: str) -> None:
    while taken := worker.take(4):
        for spec in taken:
            is_bad = bad in {source.id for source in spec.sources}
            worker.poll(worker.released(spec.job, REASON) if is_bad else worker.success(spec.job), capacity=0)


@pytest.mark.row("invariant-16")
@pytest.mark.parametrize("times", [1, 2])
def test_every_action_replays_to_the_state_of_the_tables(service: Service, tmp_path: Path, times: int) -> None:
    store, worker = open_store(f"file://{tmp_path}"), service.worker("one")
    bad = service.add_segments(20)[5]
    change_limit(name=LimitName.FAILURES_MAX, scope=EVERYTHING, value=2, context=CONTEXT)
    pause(scope=EVERYTHING, context=CONTEXT)
    resume(scope=EVERYTHING, context=CONTEXT)
    worker.take()
    cancel(ALL, context=CONTEXT)
    return_job_blocks(ALL, context=CONTEXT)
    worker.take()
    cancel(ALL, context=CONTEXT)
    pin(ALL, worker="one", context=CONTEXT)
    requeue(ALL, context=CONTEXT, keep_failures=True)
    unpin(ALL, context=CONTEXT)
    while not Quarantine.objects.exists():
        fail_all(worker, bad)
        isolate(store=store)
        assert_equal_to_tables(replayed(log(), times))
    release(everything=True, context=CONTEXT)
    [spec] = worker.take()
    worker.poll(worker.released(spec.job, REASON), capacity=0)
    assert reset_failures(ALL, context=CONTEXT).changed
    assert_equal_to_tables(replayed(log(), times))
    check_invariants()


@pytest.mark.row("invariant-16")
def test_setting_a_missing_object_aside_is_replayed(service: Service, tmp_path: Path) -> None:
    worker = service.worker()
    service.add_segments(20)
    missing = REASON.__class__(error_class="ObjectNotFound", message="gone")
    for _ in range(4):
        [spec] = worker.take()
        worker.poll(worker.released(spec.job, missing), capacity=0)
    store = open_store(f"file://{tmp_path}")
    for key in Block.objects.order_by("ulid").values_list("object_key", flat=True)[:17]:
        store.put(key, b"x")
    isolate(store=store)
    assert Quarantine.objects.count() == 3
    assert Job.objects.count() == 5
    assert_equal_to_tables(replayed(log()))


def test_an_order_of_another_build_is_refused() -> None:
    with pytest.raises(EntryUnknown):
        apply_entry(ReplayedState(), index=1, kind="operate", format_version=1, change_set={"action": "unheard_of"})


def test_every_order_that_the_service_writes_is_replayed() -> None:
    """Of each call that writes an order by a literal name: replaying an empty one fails for what it lacks, not for its
    name."""
    written: set[str] = set()
    for path in Path("webadmin").rglob("*.py"):
        written.update(re.findall(r'\brun\.write\(\s*"(\w+)"', path.read_text()))
    assert len(written) > 20
    for action in sorted(written - {"retention", "drop_deleted", "rewrite_blocks"}):  # without effect in an old form
        with contextlib.suppress(KeyError):
            apply_order(ReplayedState(), 1, {"action": action})
