"""Conditions of a write on the current entry. They are checked again together with the write itself."""

from __future__ import annotations

from dataclasses import dataclass

from engine.formats.ranges.object_entry import ObjectEntry
from webadmin.lanes.catalog.api.calls import Call
from webadmin.lanes.catalog.api.errors import RequestRefused
from webadmin.lanes.catalog.errors import EntryMissing, PreconditionFailed
from webadmin.lanes.catalog.services.branches import find_branch
from webadmin.lanes.catalog.services.protection import Blocked, check_allowed
from webadmin.lanes.catalog.services.read_objects import get_entry

ANYTHING = "*"


@dataclass(frozen=True, slots=True)
class Condition:
    """``is_absent``: no entry may exist; ``checksum``: an entry with this checksum must exist."""

    is_absent: bool
    checksum: str | None


def condition_of(call: Call) -> Condition:
    """Return the condition in the headers of a request."""
    absent, match = call.request.headers.get("If-None-Match"), call.request.headers.get("If-Match")
    if absent is not None and absent.strip() != ANYTHING:
        raise RequestRefused("If-None-Match can be * only: no object may be there yet")
    if match is not None and (match.strip() == ANYTHING or "," in match):
        raise RequestRefused("If-Match is the checksum of one object")
    if absent is not None and match is not None:
        raise RequestRefused("If-None-Match and If-Match contradict each other")
    return Condition(absent is not None, None if match is None else match.strip().strip('"'))


def check_early(call: Call, key: bytes, condition: Condition) -> None:
    """Check the condition before the body is read. Raises what the write itself would raise."""
    branch = find_branch(call.repository, call.names["branch"])
    check_allowed(call.repository, branch.name, Blocked.STAGING_WRITE)
    if not condition.is_absent and condition.checksum is None:
        return
    try:
        found = ObjectEntry.from_payload(get_entry(call.repository, branch.name, key).payload)
    except EntryMissing:
        found = None
    if condition.is_absent and found is not None:
        raise PreconditionFailed("there is an object already")
    if condition.checksum is not None and (found is None or found.checksum != condition.checksum):
        raise PreconditionFailed("the object there is not the one that was expected")
