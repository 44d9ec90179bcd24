"""Too many files of tables that cannot be read: none is kept out any more until an operator decides."""

from __future__ import annotations

import pytest

from engine.lanes.tables.jobs import KIND
from engine.protocol.messages import FailureReason
from engine.schedule.isolation import BAD_SOURCES_MIN
from engine.schedule.model import JobState
from tests.webadmin.lanes.tables.conftest import CONTEXT, World, check_timelines
from tests.webadmin.lanes.tables.parquet_files import put_hours
from webadmin.lanes.tables.models import BadFile
from webadmin.lanes.tables.services.rounds import settle_failures
from webadmin.lanes.tables.services.settle_failures import failing_tasks
from webadmin.schedule.isolation_stops import open_stop
from webadmin.schedule.models import Job, Limits
from webadmin.schedule.operation_models import IsolationStop
from webadmin.schedule.services.stop_isolation import decide_isolation

RETRY, QUARANTINE = IsolationStop.Decision.RETRY, IsolationStop.Decision.QUARANTINE
PLACE = "acme/events"


def held() -> set[str]:
    return set(BadFile.objects.filter(released_at_ms=None).values_list("path", flat=True))


@pytest.fixture
def sound(world: World) -> dict[str, bytes]:
    """The files of a day, six of which are then damaged; their job has failed for good, and was looked at."""
    Limits.objects.update(failures_max=1)
    names = put_hours(world.store, 0)
    world.add(*names)
    sound = {name: world.store.get(name) for name in names[: BAD_SOURCES_MIN + 1]}
    for name, data in sound.items():
        world.store.put(name, data[:4] + bytes(56) + data[60:])
    world.turn()
    for _ in range(2):
        [spec] = world.node.take()
        world.node.fail(spec, FailureReason(error_class="BadObject", message="it cannot be read"))
    assert Job.objects.get().state == JobState.PARKED
    report = settle_failures(lambda url: world.store)
    assert report.stopped == {PLACE: "6 of 6 recent sources cannot be merged (6 BadObject)"}
    return sound


def test_a_table_is_not_taken_apart_file_by_file(world: World, sound: dict[str, bytes]) -> None:
    assert (held(), open_stop(KIND, PLACE) is not None) == (set(), True)
    assert failing_tasks() == [], "they are not looked at again, and hold up no other table's"
    check_timelines()


def test_on_a_repaired_store_all_are_merged(world: World, sound: dict[str, bytes]) -> None:
    for name, data in sound.items():
        world.store.put(name, data)
    decide_isolation(KIND, PLACE, RETRY, context=CONTEXT)
    assert open_stop(KIND, PLACE) is None
    world.work_off()
    assert (held(), set(Job.objects.values_list("state", flat=True))) == (set(), {JobState.DONE})
    check_timelines()


def test_after_the_decision_that_they_are_lost_all_are_kept_out(world: World, sound: dict[str, bytes]) -> None:
    decide_isolation(KIND, PLACE, QUARANTINE, context=CONTEXT)
    assert set(settle_failures(lambda url: world.store).quarantined) == set(sound)
    assert (held(), open_stop(KIND, PLACE)) == (set(sound), None)
    world.work_off()
    check_timelines()
