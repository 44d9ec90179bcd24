"""The JSON encoding of poll requests and responses; every field is validated.

Unknown fields are ignored, so that newer peers can add fields. Senders truncate long error texts.
"""

from __future__ import annotations

from typing import Any

from engine.protocol.fields import (
    COUNT_MAX,
    Fields,
    json_object,
    truncate_text,
)
from engine.protocol.messages import (
    Assignment,
    FailureReason,
    JobUpdate,
    LeaseGrant,
    PollRequest,
    PollResponse,
    Progress,
    UpdateStatus,
)

UPDATES_MAX = 1000
"""Maximum number of reports in a poll; a node holds a few jobs per core."""
CAPACITY_MAX = 1024
"""Maximum number of jobs that a worker can request in a poll."""
NAME_MAX = 100
JOB_NAME_MAX = 250
TOKEN_MAX = 200
TEXT_MAX = 2000
"""Characters of an error message."""
KEY_MAX = 1024
ASSIGNMENTS_MAX = 10_000


def request_to_wire(request: PollRequest) -> dict[str, Any]:
    """Return the JSON form of a poll request."""
    return {
        "worker": request.worker,
        "build": request.build,
        "capacity": request.capacity,
        "updates": [_update_to_wire(update) for update in request.updates],
        **({"last_serial": request.last_serial} if request.last_serial else {}),
    }


def request_from_wire(data: object) -> PollRequest:
    """Return a poll request from its JSON form. Raises InvalidMessage."""
    fields = Fields.of(data, "request")
    updates = tuple(_update_from_wire(update) for update in fields.objects("updates", UPDATES_MAX, default=()))
    pairs = {(update.job, update.token) for update in updates}
    if len(pairs) != len(updates):
        raise fields.error("updates", "a job is reported twice under the same token")
    return PollRequest(
        worker=fields.text("worker", NAME_MAX, empty=False),
        build=fields.text("build", NAME_MAX),
        capacity=fields.integer("capacity", 0, CAPACITY_MAX),
        updates=updates,
        last_serial=fields.integer("last_serial", 0, COUNT_MAX, default=0),
    )


def response_to_wire(response: PollResponse) -> dict[str, Any]:
    """Return the JSON form of a poll response."""
    return {
        "leases": [
            {"job": lease.job, "token": lease.token, "expires_in": lease.expires_in} for lease in response.leases
        ],
        "assignments": [
            {"job": given.job, "token": given.token, "spec": given.spec, "expires_in": given.expires_in}
            for given in response.assignments
        ],
        "serial": response.serial,
    }


def response_from_wire(data: object) -> PollResponse:
    """Return a poll response from its JSON form. Raises InvalidMessage."""
    fields = Fields.of(data, "response")
    return PollResponse(
        leases=tuple(
            LeaseGrant(
                job=lease.text("job", JOB_NAME_MAX, empty=False),
                token=lease.text("token", TOKEN_MAX, empty=False),
                expires_in=lease.seconds("expires_in"),
            )
            for lease in fields.objects("leases", ASSIGNMENTS_MAX)
        ),
        assignments=tuple(
            Assignment(
                job=given.text("job", JOB_NAME_MAX, empty=False),
                token=given.text("token", TOKEN_MAX, empty=False),
                spec=given.mapping("spec"),
                expires_in=given.seconds("expires_in"),
            )
            for given in fields.objects("assignments", ASSIGNMENTS_MAX)
        ),
        serial=fields.integer("serial", 0, COUNT_MAX, default=0),
    )


def reason_to_wire(reason: FailureReason) -> dict[str, Any]:
    """Return the JSON form of a failure reason, with its texts truncated to the accepted lengths."""
    return {
        "error_class": truncate_text(reason.error_class, NAME_MAX) or "Error",
        "message": truncate_text(reason.message, TEXT_MAX),
        "object": truncate_text(reason.object, KEY_MAX),
        "section": truncate_text(reason.section, NAME_MAX),
        "offset": reason.offset,
        "build": truncate_text(reason.build, NAME_MAX),
    }


def _update_to_wire(update: JobUpdate) -> dict[str, Any]:
    wire: dict[str, Any] = {"job": update.job, "token": update.token, "status": update.status.value}
    if update.progress is not None:
        progress = update.progress
        wire["progress"] = {
            "done": progress.done,
            "total": progress.total,
            "phase": truncate_text(progress.phase, NAME_MAX),
        }
    if update.result is not None:
        wire["result"] = update.result
    if update.reason is not None:
        wire["reason"] = reason_to_wire(update.reason)
    return wire


def _update_from_wire(fields: Fields) -> JobUpdate:
    status = UpdateStatus(fields.choice("status", [status.value for status in UpdateStatus]))
    progress, reason = fields.optional("progress"), fields.optional("reason")
    return JobUpdate(
        job=fields.text("job", JOB_NAME_MAX, empty=False),
        token=fields.text("token", TOKEN_MAX, empty=False),
        status=status,
        progress=_progress(progress) if progress else None,
        result=json_object(fields, "result"),
        reason=_reason(reason) if reason else None,
    )


def _progress(fields: Fields) -> Progress:
    return Progress(
        done=fields.integer("done", 0, COUNT_MAX),
        total=fields.integer("total", 0, COUNT_MAX),
        phase=fields.text("phase", NAME_MAX, default=""),
    )


def _reason(fields: Fields) -> FailureReason:
    return FailureReason(
        error_class=fields.text("error_class", NAME_MAX, empty=False),
        message=fields.text("message", TEXT_MAX),
        object=fields.text("object", KEY_MAX, default=""),
        section=fields.text("section", NAME_MAX, default=""),
        offset=fields.integer("offset", -1, COUNT_MAX, default=-1),
        build=fields.text("build", NAME_MAX, default=""),
    )
