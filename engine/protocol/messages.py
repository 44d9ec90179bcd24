"""The messages of a poll: the request of a worker and the response of the service.

``engine.protocol.wire`` encodes them as JSON with the field names below. Job specifications are opaque here; each lane
defines its own.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


class UpdateStatus(enum.StrEnum):
    """The status of a job that a worker reports."""

    IN_PROGRESS = "in_progress"  # running; renews the lease
    SUCCESS = "success"  # completed, with a result
    RELEASED = "released"  # no longer running; ends the lease


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReason:
    """Why a worker released a job. ``object`` is the candidate for quarantine, ``offset`` -1 if there is none."""

    error_class: str
    message: str
    object: str = ""
    section: str = ""
    offset: int = -1
    build: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a running job, in a unit of its lane (bytes for profiles)."""

    done: int
    total: int
    phase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUpdate:
    """A report on one job under one token. SUCCESS has a ``result``, RELEASED may have a ``reason``."""

    job: str
    token: str
    status: UpdateStatus
    progress: Progress | None = None
    result: dict[str, Any] | None = None
    reason: FailureReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRequest:
    """The request of a poll. ``capacity`` is the number of additional jobs that the worker can start now.

    ``last_serial`` is the ``serial`` of the last response that the worker received, or 0 if no response was lost since.
    Jobs that earlier responses assigned and ``updates`` does not name are not held by the worker.
    """

    worker: str
    build: str
    capacity: int
    updates: tuple[JobUpdate, ...] = ()
    last_serial: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGrant:
    """A job that the worker holds; its lease expires in ``expires_in`` seconds (relative: no clocks are compared)."""

    job: str
    token: str
    expires_in: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A job assigned to the worker. ``spec`` is the job specification of its lane, as JSON."""

    job: str
    token: str
    spec: dict[str, Any]
    expires_in: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResponse:
    """The response of a poll. The worker stops reported jobs that are not in ``leases``: they are done or lost.

    ``serial`` is the index of the last command, which grows with every token issued.
    """

    leases: tuple[LeaseGrant, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    serial: int = 0
