"""Leases in memory: those that are over are found as by a look at every lease, though an extension does nothing."""

from __future__ import annotations

import random

import pytest

from engine.schedule.model import JobState
from engine.simulation.memory.lease_book import LeaseBook
from engine.simulation.memory.rows import MemoryJob


def _job(number: int, expires_ms: int) -> MemoryJob:
    job = MemoryJob(number, f"job-{number}", "acme", 1, 0, JobState.LEASED, (), 1, 0, 0, 0)
    job.lease_expires_ms = expires_ms
    return job


def test_a_lease_that_was_extended_is_over_only_when_its_new_end_is_past() -> None:
    book, job = LeaseBook(), _job(1, 100)
    book.put(job)
    job.lease_expires_ms = 200
    assert book.expired(150) == []
    assert book.expired(200) == []
    assert book.expired(201) == [job]
    assert book.expired(300) == [job], "it stays over until somebody does something"


def test_a_lease_that_was_found_over_can_be_extended() -> None:
    book, job = LeaseBook(), _job(1, 100)
    book.put(job)
    assert book.expired(101) == [job]
    job.lease_expires_ms = 300
    book.put(job)
    assert book.expired(300) == []
    assert book.expired(301) == [job]


def test_a_lease_that_was_found_over_is_not_when_time_goes_back() -> None:
    """As it does for who only looks, when the wall clock jumped ahead and back before any command."""
    book, job = LeaseBook(), _job(1, 100)
    book.put(job)
    assert book.expired(101) == [job]
    assert book.expired(100) == []
    assert book.expired(101) == [job]


def test_a_shorter_lease_under_a_new_token_counts() -> None:
    book, job = LeaseBook(), _job(1, 1000)
    book.put(job)
    book.remove(job)
    job.lease_expires_ms = 50
    book.put(job)
    assert book.expired(51) == [job]


@pytest.mark.parametrize("seed", range(20))
def test_the_book_finds_what_a_look_at_every_lease_finds(seed: int) -> None:
    draw = random.Random(seed)
    book, held, now_ms, found = LeaseBook(), dict[int, MemoryJob](), 0, 0
    for _ in range(800):
        number, lease_ms = draw.randrange(12), draw.choice([5, 15, 40])
        job = held.get(number)
        if job is None:
            job = held[number] = _job(number, now_ms + lease_ms)
            book.put(job)
        elif draw.random() < 0.3:
            book.remove(held.pop(number))
        elif now_ms + lease_ms > job.lease_expires_ms:
            job.lease_expires_ms = now_ms + lease_ms
            book.extend(job)
        now_ms += draw.randrange(4)
        if draw.random() < 0.3:
            over = [each for each in held.values() if each.lease_expires_ms < now_ms]
            assert book.expired(now_ms) == sorted(over, key=lambda each: (each.lease_expires_ms, each.id))
            found += len(over)
    assert found > 50
