"""Tags: names of commits."""

from __future__ import annotations

from django.http import HttpResponse

from webadmin.lanes.catalog.api import shapes
from webadmin.lanes.catalog.api.answers import answer, nothing, page
from webadmin.lanes.catalog.api.calls import Call, flag_of
from webadmin.lanes.catalog.column_sizes import NAME_MAX
from webadmin.lanes.catalog.services.tags import create_tag, delete_tag, find_tag, list_tags


def list_them(call: Call) -> HttpResponse:
    """List tags by name."""
    bounds = call.stretch()
    rows, has_more = list_tags(call.repository, prefix=bounds.prefix, after=bounds.after, amount=bounds.amount)
    return page([shapes.tag_of(row) for row in rows], rows[-1].name if has_more else None)


def create(call: Call) -> HttpResponse:
    """Create a tag at a commit; ``force`` does not move an existing tag."""
    flag_of(call.body, "force")
    tag = create_tag(
        call.repository,
        call.body.text("id", NAME_MAX, empty=False),
        call.body.text("ref", NAME_MAX, empty=False),
        context=call.order,
    )
    return answer(shapes.tag_of(tag), 201)


def read(call: Call) -> HttpResponse:
    """Return the commit of a tag."""
    return answer(shapes.tag_of(find_tag(call.repository, call.names["tag"])))


def delete(call: Call) -> HttpResponse:
    """Delete a tag; its commit stays."""
    delete_tag(call.repository, call.names["tag"], context=call.order)
    return nothing()
