"""Diffs: uncommitted changes of a branch, and changes between two references."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse

from webadmin.lanes.catalog.api import shapes
from webadmin.lanes.catalog.api.answers import page
from webadmin.lanes.catalog.api.calls import Call
from webadmin.lanes.catalog.api.errors import RequestRefused
from webadmin.lanes.catalog.services.diffs import DiffPage, compare_refs, diff_branch, diff_refs

KINDS = {"": compare_refs, "three_dot": compare_refs, "two_dot": diff_refs}


def uncommitted(call: Call) -> HttpResponse:
    """List the staged changes of a branch against its head."""
    return _answer(diff_branch(call.repository, call.names["branch"], **_part(call)))


def between(call: Call) -> HttpResponse:
    """List the changes of the right reference against the common base (``type`` three_dot) or against the left one."""
    call.refuse("include_right_stats")
    kind = call.text("type")
    if kind not in KINDS:
        raise RequestRefused(f"type is two_dot or three_dot, not {kind[:20]!r}")
    return _answer(KINDS[kind](call.repository, call.names["left"], call.names["right"], **_part(call)))


def _part(call: Call) -> dict[str, Any]:
    bounds = call.stretch()
    return {
        "prefix": bounds.prefix.encode(),
        "after": bounds.after.encode(),
        "delimiter": call.text("delimiter").encode(),
        "amount": bounds.amount,
    }


def _answer(found: DiffPage) -> HttpResponse:
    return page([shapes.diff_of(item) for item in found.items], None if found.after is None else found.after.decode())
