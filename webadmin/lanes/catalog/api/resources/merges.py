"""Merge, revert and cherry-pick commits."""

from __future__ import annotations

from dataclasses import replace

from django.http import HttpResponse

from engine.lanes.catalog.three_way import Side
from engine.protocol.fields import Fields
from webadmin.lanes.catalog.api import shapes
from webadmin.lanes.catalog.api.answers import answer, nothing
from webadmin.lanes.catalog.api.calls import Call, flag_of, metadata_of
from webadmin.lanes.catalog.api.resources.commits import new_commit
from webadmin.lanes.catalog.column_sizes import NAME_MAX
from webadmin.lanes.catalog.errors import RefMissing
from webadmin.lanes.catalog.services.branches import find_branch
from webadmin.lanes.catalog.services.commits import MESSAGE_MAX, NewCommit, merge_base
from webadmin.lanes.catalog.services.move_heads import cherry_pick, merge_into, revert_commit
from webadmin.lanes.catalog.services.refs import resolve

PARENTS_MAX = 1_000


def merge(call: Call) -> HttpResponse:
    """Merge the changes of a reference since the common base into a branch."""
    source, branch = call.names["ref"], call.names["branch"]
    fields = call.body
    new = new_commit(call, fields, default_message=f"Merge {source!r} into {branch!r}")
    made = merge_into(
        call.repository,
        source,
        branch,
        replace(new, allow_empty=new.allow_empty or flag_of(fields, "force")),
        strategy=_strategy(fields),
        is_squashed=flag_of(fields, "squash_merge"),
        context=call.order,
    )
    return answer({"reference": made.commit_id})


def find_base(call: Call) -> HttpResponse:
    """Return the merge base of two references."""
    source = resolve(call.repository, call.names["ref"]).commit
    destination = resolve(call.repository, find_branch(call.repository, call.names["branch"]).name).commit
    base = merge_base(call.repository, source, destination)
    if base is None:
        raise RefMissing("the two have no commit in common")
    return answer(
        {
            "source_commit_id": source.commit_id,
            "destination_commit_id": destination.commit_id,
            "base_commit_id": base.commit_id,
        }
    )


def revert(call: Call) -> HttpResponse:
    """Revert the changes of a commit."""
    ref = call.body.text("ref", NAME_MAX, empty=False)
    new = _overridden(call, NewCommit(committer=call.key.name, message=f"Revert {ref}", metadata={}))
    revert_commit(
        call.repository,
        call.names["branch"],
        ref,
        replace(new, allow_empty=flag_of(call.body, "allow_empty")),
        parent_number=call.body.integer("parent_number", 0, PARENTS_MAX, default=0) or None,
        context=call.order,
    )
    return nothing()


def pick(call: Call) -> HttpResponse:
    """Apply the changes of a commit to another branch."""
    ref = call.body.text("ref", NAME_MAX, empty=False)
    picked = resolve(call.repository, ref).commit
    wanted = NewCommit(committer=call.key.name, message=picked.message, metadata=picked.metadata)
    parent = call.body.integer("parent_number", 1, PARENTS_MAX) if "parent_number" in call.body.values else None
    made = cherry_pick(
        call.repository,
        call.names["branch"],
        ref,
        _overridden(call, wanted),
        parent_number=parent,
        context=call.order,
    )
    return answer(shapes.commit_of(made), 201)


def _overridden(call: Call, new: NewCommit) -> NewCommit:
    if "commit_overrides" not in call.body.values:
        return new
    overrides = Fields.of(call.body.values["commit_overrides"], "$.commit_overrides")
    message = overrides.text("message", MESSAGE_MAX) if overrides.values.get("message") is not None else new.message
    metadata = metadata_of(overrides) if overrides.values.get("metadata") is not None else new.metadata
    return replace(new, message=message, metadata=metadata)


def _strategy(fields: Fields) -> Side | None:
    if not fields.text("strategy", NAME_MAX, default=""):
        return None
    return Side(fields.choice("strategy", [side.value for side in Side]))
