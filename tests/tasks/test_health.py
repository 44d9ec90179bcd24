"""A node that fails whatever it gets rests; one that meets damaged objects does not."""

from __future__ import annotations

import pytest

from engine.core.errors import ChecksumMismatch
from engine.storage.model import ObjectNotFound, StorageError
from tasks.health import BATCHES_BEFORE_REST, REST_SECONDS, REST_SECONDS_MAX, Health

OWN = StorageError("put", "blocks/1", "no space left on device")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(clock)


def test_failures_of_its_own_in_a_row_make_it_rest_longer_each_time(health: Health, clock: Clock) -> None:
    for _ in range(BATCHES_BEFORE_REST - 1):
        health.note([OWN, OWN])
        assert not health.is_resting()
    for rest in (REST_SECONDS, REST_SECONDS * 2, REST_SECONDS * 4):
        health.note([OWN])
        clock.now += rest - 0.1
        assert health.is_resting()
        clock.now += 0.1
        assert not health.is_resting()


def test_a_rest_has_an_end(health: Health, clock: Clock) -> None:
    for _ in range(100):
        health.note([OWN])
    clock.now += REST_SECONDS_MAX
    assert not health.is_resting()


def test_one_success_ends_the_row(health: Health) -> None:
    for _ in range(10):
        health.note([OWN])
        health.note([OWN, {"blocks": []}])
    assert not health.is_resting()


@pytest.mark.parametrize(
    "error", [ChecksumMismatch("symbols", 3, "no"), ObjectNotFound("get", "segments/1", "no such object")]
)
def test_damaged_data_is_not_the_nodes_trouble(health: Health, error: Exception) -> None:
    for _ in range(10):
        health.note([error])
    assert not health.is_resting()


def test_a_batch_of_cancelled_jobs_has_no_effect_on_health(health: Health) -> None:
    for _ in range(10):
        health.note([])
    assert not health.is_resting()
