"""A node whose batches fail backs off; damaged objects have no effect."""

from __future__ import annotations

import pytest

from engine.core.errors import ChecksumMismatch
from engine.storage.model import ObjectNotFound, StorageError
from tasks.health import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, FAILED_BATCHES_BEFORE_BACKOFF, Health

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


def test_consecutive_node_errors_back_off_exponentially(health: Health, clock: Clock) -> None:
    for _ in range(FAILED_BATCHES_BEFORE_BACKOFF - 1):
        health.note([OWN, OWN])
        assert not health.is_backing_off()
    for seconds in (BACKOFF_SECONDS, BACKOFF_SECONDS * 2, BACKOFF_SECONDS * 4):
        health.note([OWN])
        clock.now += seconds - 0.1
        assert health.is_backing_off()
        clock.now += 0.1
        assert not health.is_backing_off()


def test_the_backoff_has_a_maximum(health: Health, clock: Clock) -> None:
    for _ in range(100):
        health.note([OWN])
    clock.now += BACKOFF_SECONDS_MAX
    assert not health.is_backing_off()


def test_one_success_resets_the_backoff(health: Health) -> None:
    for _ in range(10):
        health.note([OWN])
        health.note([OWN, {"blocks": []}])
    assert not health.is_backing_off()


@pytest.mark.parametrize(
    "error", [ChecksumMismatch("symbols", 3, "no"), ObjectNotFound("get", "segments/1", "no such object")]
)
def test_damaged_data_is_not_a_node_error(health: Health, error: Exception) -> None:
    for _ in range(10):
        health.note([error])
    assert not health.is_backing_off()


def test_a_batch_of_cancelled_jobs_has_no_effect_on_health(health: Health) -> None:
    for _ in range(10):
        health.note([])
    assert not health.is_backing_off()
