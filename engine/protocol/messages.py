"""One poll: what a worker reports and wishes for, and what the service answers.

The wire form is JSON with the field names below (design, section 5). ``*_from_wire`` functions live in
``engine.protocol.wire``; a job specification is opaque here and belongs to its lane.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


class UpdateStatus(enum.StrEnum):
    """What a worker says of a job it holds."""

    IN_PROGRESS = "in_progress"  # still running: renew my lease
    SUCCESS = "success"  # done: here is the result
    RELEASED = "released"  # not running any more: take it back now


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReason:
    """Why a worker gave a job back; recorded for people, names the candidate for quarantine."""

    error_class: str
    message: str
    object: str = ""
    section: str = ""
    offset: int = -1
    build: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a running job is, in units its lane chooses (bytes for profiles)."""

    done: int
    total: int
    phase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUpdate:
    """A report on one job under one token. ``result`` goes with SUCCESS, ``reason`` optionally with RELEASED."""

    job: str
    token: str
    status: UpdateStatus
    progress: Progress | None = None
    result: dict[str, Any] | None = None
    reason: FailureReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRequest:
    """Everything a worker says in one request. ``capacity`` is how many more jobs it can start now.

    ``heard`` is the ``serial`` of the last answer that the worker got before it sent this, 0 if no answer was lost
    lately. It says: what an earlier answer assigned, and these updates do not name, I do not have.
    """

    worker: str
    build: str
    capacity: int
    updates: tuple[JobUpdate, ...] = ()
    heard: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGrant:
    """A job the worker still holds, and for how many seconds more (relative: no clocks are compared)."""

    job: str
    token: str
    expires_in: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A job newly given to the worker. ``spec`` is what its merge needs to know, as JSON of its lane."""

    job: str
    token: str
    spec: dict[str, Any]
    expires_in: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResponse:
    """A job that was reported and is not in ``leases`` is not the worker's any more (done, or lost): stop it.

    ``serial`` is the last command that the service knew of; it grows with the tokens it gives out.
    """

    leases: tuple[LeaseGrant, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    serial: int = 0
