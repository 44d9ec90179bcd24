"""Import objects that are already in the store: start, status, cancel."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpResponse

from engine.protocol.fields import Fields
from webadmin.lanes.catalog.api import shapes
from webadmin.lanes.catalog.api.answers import answer, nothing
from webadmin.lanes.catalog.api.calls import Call
from webadmin.lanes.catalog.api.import_runs import Wanted, cancel_import, find_import, start_import
from webadmin.lanes.catalog.api.models import ImportRun, ImportState
from webadmin.lanes.catalog.api.resources.commits import new_commit
from webadmin.lanes.catalog.services.branches import find_branch
from webadmin.lanes.catalog.services.commits import find_commit
from webadmin.lanes.catalog.services.import_objects import ImportSource, check_sources
from webadmin.lanes.catalog.services.repositories import check_writable

PATHS_MAX = 1_000
PATH_MAX = 4_096
KINDS = ("common_prefix", "object")


def start(call: Call) -> HttpResponse:
    """Start an import of prefixes and objects as one commit."""
    find_branch(call.repository, call.names["branch"])
    check_writable(call.repository)
    paths = call.body.values.get("paths")
    if not isinstance(paths, list) or not 0 < len(paths) <= PATHS_MAX:
        raise call.body.error("paths", f"a list of 1 to {PATHS_MAX} sources is expected")
    commit = Fields.of(call.body.values.get("commit"), "$.commit")
    commit = Fields("$.commit", {name: value for name, value in commit.values.items() if value is not None})
    sources = [_source(Fields.of(path, f"$.paths[{number}]")) for number, path in enumerate(paths)]
    check_sources(call.repository, sources)
    wanted = Wanted(
        repository=call.repository,
        branch=call.names["branch"],
        sources=sources,
        commit=new_commit(call, commit, default_message="Import objects"),
        context=call.order,
    )
    return answer({"id": start_import(wanted).name}, 202)


def status(call: Call) -> HttpResponse:
    """Return the progress of an import."""
    run = find_import(call.repository, call.names["branch"], call.text("id"))
    return answer(_status(call, run))


def cancel(call: Call) -> HttpResponse:
    """Cancel an import."""
    cancel_import(call.repository, call.names["branch"], call.text("id"))
    return nothing()


def _status(call: Call, run: ImportRun) -> dict[str, Any]:
    data: dict[str, Any] = {
        "completed": run.state == ImportState.COMPLETED,
        "update_time": datetime.fromtimestamp(run.heartbeat_ms / 1000, UTC).isoformat(),
        "ingested_objects": run.objects_taken,
    }
    if run.state == ImportState.FAILED:
        data["error"] = {"message": run.error}
    if run.commit_id:
        commit = find_commit(call.repository, run.commit_id)
        data |= {"metarange_id": commit.metarange, "commit": shapes.commit_of(commit)}
    return data


def _source(fields: Fields) -> ImportSource:
    return ImportSource(
        is_prefix=fields.choice("type", KINDS) == KINDS[0],
        url=fields.text("path", PATH_MAX, empty=False),
        destination=fields.text("destination", PATH_MAX),
    )
