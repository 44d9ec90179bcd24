"""Branches, their uncommitted changes, and resetting these."""

from __future__ import annotations

from django.http import HttpResponse

from engine.formats.ranges.model import KEY_BYTES_MAX, key_of
from webadmin.lanes.catalog.api import shapes
from webadmin.lanes.catalog.api.answers import answer, nothing, page
from webadmin.lanes.catalog.api.calls import Call, flag_of, part_of_key
from webadmin.lanes.catalog.column_sizes import NAME_MAX
from webadmin.lanes.catalog.services.branches import (
    create_branch,
    delete_branch,
    find_branch,
    list_branches,
)
from webadmin.lanes.catalog.services.reset_branch import reset_branch, reset_key, reset_prefix

RESETS = ("object", "common_prefix", "reset")


def list_them(call: Call) -> HttpResponse:
    """List branches by name."""
    bounds = call.stretch()
    rows, has_more = list_branches(
        call.repository,
        prefix=bounds.prefix,
        after=bounds.after,
        amount=bounds.amount,
        is_hidden_shown=call.flag("show_hidden"),
    )
    return page([shapes.ref_of(row) for row in rows], rows[-1].name if has_more else None)


def create(call: Call) -> HttpResponse:
    """Create a branch at a commit; the response is the id of the commit."""
    branch = create_branch(
        call.repository,
        call.body.text("name", NAME_MAX, empty=False),
        call.body.text("source", NAME_MAX, empty=False),
        context=call.order,
        is_hidden=flag_of(call.body, "hidden"),
    )
    return answer(branch.head, 201)


def read(call: Call) -> HttpResponse:
    """Return the commit of a branch."""
    return answer(shapes.ref_of(find_branch(call.repository, call.names["branch"])))


def delete(call: Call) -> HttpResponse:
    """Delete a branch with its staged entries."""
    delete_branch(call.repository, call.names["branch"], context=call.order)
    return nothing()


def reset(call: Call) -> HttpResponse:
    """Drop uncommitted changes: of one key, of a prefix, or all."""
    what = call.body.choice("type", RESETS)
    path = call.body.text("path", KEY_BYTES_MAX, default="")
    if what == "reset":
        reset_branch(call.repository, call.names["branch"], context=call.order)
    elif what == "object":
        reset_key(call.repository, call.names["branch"], key_of(path))
    else:
        prefix = part_of_key("path", path).encode()
        reset_prefix(call.repository, call.names["branch"], prefix, context=call.order)
    return nothing()
