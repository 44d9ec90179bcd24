"""Repositories of the caller's tenant."""

from __future__ import annotations

from django.http import HttpResponse

from webadmin.lanes.catalog.api import shapes
from webadmin.lanes.catalog.api.answers import answer, nothing, page
from webadmin.lanes.catalog.api.calls import Call, flag_of
from webadmin.lanes.catalog.api.errors import NotServed
from webadmin.lanes.catalog.column_sizes import NAME_MAX, NAMESPACE_MAX, REPOSITORY_NAME_MAX
from webadmin.lanes.catalog.services.repositories import (
    NewRepository,
    create_repository,
    delete_repository,
    list_repositories,
)


def list_them(call: Call) -> HttpResponse:
    """List repositories by name."""
    call.refuse("search")
    bounds = call.stretch()
    rows, has_more = list_repositories(call.key.tenant, prefix=bounds.prefix, after=bounds.after, amount=bounds.amount)
    return page([shapes.repository_of(row) for row in rows], rows[-1].name if has_more else None)


def create(call: Call) -> HttpResponse:
    """Create a repository with its first branch."""
    call.refuse("bare")
    if flag_of(call.body, "sample_data"):
        raise NotServed("there are no sample data")
    if call.body.text("storage_id", NAME_MAX, default=""):
        raise NotServed("there is one object store, and it has no id")
    new = NewRepository(
        tenant=call.key.tenant,
        name=call.body.text("name", REPOSITORY_NAME_MAX, empty=False),
        storage_namespace=call.body.text("storage_namespace", NAMESPACE_MAX, empty=False),
        default_branch=call.body.text("default_branch", NAME_MAX, default="main") or "main",
        is_read_only=flag_of(call.body, "read_only"),
    )
    return answer(shapes.repository_of(create_repository(new, context=call.order)), 201)


def read(call: Call) -> HttpResponse:
    """Describe a repository."""
    return answer(shapes.repository_of(call.repository))


def delete(call: Call) -> HttpResponse:
    """Delete a repository (a read-only one needs ``force``); its files are deleted after a grace period."""
    delete_repository(call.repository, context=call.order, force=call.flag("force"))
    return nothing()


def read_metadata(call: Call) -> HttpResponse:
    """Return the metadata of a repository, which is always empty."""
    return answer({})
