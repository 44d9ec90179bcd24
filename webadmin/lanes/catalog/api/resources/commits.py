"""Commits: create one, read one, list the history."""

from __future__ import annotations

from datetime import UTC, datetime

from django.http import HttpResponse

from engine.formats.ranges.model import key_of
from engine.protocol.fields import COUNT_MAX, Fields
from webadmin.lanes.catalog.api import shapes
from webadmin.lanes.catalog.api.answers import answer, page
from webadmin.lanes.catalog.api.calls import Call, flag_of, metadata_of, part_of_key
from webadmin.lanes.catalog.api.errors import RequestRefused
from webadmin.lanes.catalog.services.commit_branch import commit_branch
from webadmin.lanes.catalog.services.commits import MESSAGE_MAX, NewCommit
from webadmin.lanes.catalog.services.log import LogQuery, log_of
from webadmin.lanes.catalog.services.refs import resolve

SECONDS_MAX = COUNT_MAX // 1000


def new_commit(call: Call, fields: Fields, *, default_message: str = "") -> NewCommit:
    """Return the description of the commit to create."""
    created = fields.integer("date", 0, SECONDS_MAX) * 1000 if "date" in fields.values else None
    return NewCommit(
        committer=call.key.name,
        message=fields.text("message", MESSAGE_MAX, default="") or default_message,
        metadata=metadata_of(fields),
        created_ms=created,
        allow_empty=flag_of(fields, "allow_empty"),
    )


def commit(call: Call) -> HttpResponse:
    """Commit the staged entries of a branch."""
    call.refuse("source_metarange")
    new = new_commit(call, call.body)
    made = commit_branch(call.repository, call.names["branch"], new, context=call.order)
    return answer(shapes.commit_of(made), 201)


def read(call: Call) -> HttpResponse:
    """Return a commit; the SDK also passes names of branches and tags here."""
    return answer(shapes.commit_of(resolve(call.repository, call.names["commit"]).commit))


def log(call: Call) -> HttpResponse:
    """List the commits reachable from a reference, the newest first."""
    bounds = call.stretch()
    query = LogQuery(
        after=bounds.after,
        amount=bounds.amount,
        is_first_parent=call.flag("first_parent"),
        keys=[key_of(text) for text in call.query.get("objects", ())],
        prefixes=[part_of_key("prefixes", text).encode() for text in call.query.get("prefixes", ())],
        since_ms=_since(call.text("since")),
        stop_at=call.text("stop_at"),
    )
    commits, has_more = log_of(call.repository, call.names["ref"], query)
    is_cut = has_more and not call.flag("limit")
    return page([shapes.commit_of(commit) for commit in commits], commits[-1].commit_id if is_cut else None)


def _since(text: str) -> int | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise RequestRefused(f"since is a time like 2026-01-31T12:00:00Z, not {text[:40]!r}") from error
