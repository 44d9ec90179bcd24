"""Dry run of a poll: the same reads and decisions, without applying them."""

from __future__ import annotations

from engine.protocol.messages import PollRequest
from engine.schedule.model import ChangeSet
from engine.schedule.prepare import prepare
from webadmin.schedule.models import Worker
from webadmin.schedule.polls.view import read_poll

WORKER = "(dry run)"


def dry_poll(*, capacity: int, worker: str = WORKER, build: str = "") -> ChangeSet:
    """Return the change set of a poll that reports nothing and has free capacity for ``capacity`` jobs."""
    request = PollRequest(worker=worker, build=build, capacity=capacity)
    return prepare(read_poll(request, Worker(name=worker, build=build), credential="").snapshot)
