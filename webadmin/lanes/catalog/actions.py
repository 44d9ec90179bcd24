"""Operators' actions on repositories and branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework import serializers

from webadmin.adminkit import formatting as show
from webadmin.adminkit.setting_labels import setting, write_size
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.actions.action import ActionContext, OperatorAction, Values, outcome_json
from webadmin.base.actions.fields import Group, Number, Text
from webadmin.lanes.catalog.column_sizes import NAME_MAX, REPOSITORY_NAME_MAX
from webadmin.lanes.catalog.compaction_policies import NUMBERS, WORDS, policy_of
from webadmin.lanes.catalog.errors import CatalogRefused, RepositoryMissing
from webadmin.lanes.catalog.models import Branch, Repository
from webadmin.lanes.catalog.repository_sections import setting_value
from webadmin.lanes.catalog.services.branches import find_branch
from webadmin.lanes.catalog.services.compaction.change_compaction import change_policy, order_compaction
from webadmin.lanes.catalog.services.garbage.collect_garbage import collect_garbage
from webadmin.lanes.catalog.services.repositories import find_repository, restore_repository
from webadmin.lanes.catalog.states import RepositoryState
from webadmin.lanes.catalog.status import deleted_repositories

DEFAULT_TENANT = "anonymous"

TENANT = Text("tenant", "Tenant", "Owner.", length_max=TENANT_NAME_MAX, default=DEFAULT_TENANT)
REPOSITORY = Text("repository", "Repository", "Name.", length_max=REPOSITORY_NAME_MAX, is_required=True)
SETTINGS = Group(
    "settings",
    "Settings",
    "Compaction settings of the repository; omitted settings keep their value.",
    component="CompactionSettings",
    fields=tuple(setting(name, WORDS[name], low, high) for name, (low, high) in NUMBERS.items()),
    is_partial=True,
)
GARBAGE = {
    "files_seen": "Files listed",
    "files_condemned": "Files condemned: deleted after the grace period",
    "files_deleted": "Files deleted",
    "objects_seen": "Objects listed",
    "objects_condemned": "Objects condemned: deleted by a later round",
    "objects_deleted": "Objects deleted",
    "rows_deleted": "Rows of retired tokens deleted",
    "bytes_deleted": "Bytes deleted",
}


class ChangedSerializer(serializers.Serializer[Any]):
    """What an action changed, or would change in a dry run."""

    changed = serializers.ListField(child=serializers.CharField())
    dry_run = serializers.BooleanField()


def form_values(rows: Sequence[Repository]) -> dict[str, Any]:
    """Return the settings of the first of these repositories as initial values of the form."""
    if not rows:
        return {}
    policy = policy_of(rows[0])
    values = {name: int(getattr(policy, name)) for name in NUMBERS}
    return {name: write_size(value) if WORDS[name].unit == "bytes" else value for name, value in values.items()}


def deleted_repository(tenant: str, name: str, repository_id: int | None) -> Repository:
    """Return the deleted repository of this name. Raises RepositoryMissing, CatalogRefused if there are several."""
    found = [row for row in deleted_repositories() if (row.tenant, row.name) == (tenant, name)]
    found = [row for row in found if repository_id in (None, row.pk)]
    if not found:
        raise RepositoryMissing(f"{tenant} has no deleted repository {name!r} that can be restored")
    if len(found) > 1:
        ids = ", ".join(str(row.pk) for row in found)
        raise CatalogRefused(f"{len(found)} deleted repositories are named {name!r}: choose by id one of {ids}")
    return found[0]


def _change(values: Values, context: ActionContext) -> dict[str, Any]:
    repository = find_repository(values["tenant"], values["repository"])
    before = policy_of(repository)
    different = change_policy(repository, values["settings"], context=context)
    settings = [
        {
            "setting": WORDS[name].label,
            "before": setting_value(name, getattr(before, name)),
            "after": setting_value(name, value),
        }
        for name, value in different.items()
    ]
    changed = [WORDS[name].label for name in different]
    return {"settings": settings, "changed": changed, "dry_run": context.is_dry_run}


def _compact(values: Values, context: ActionContext) -> dict[str, Any]:
    branch = find_branch(find_repository(values["tenant"], values["repository"]), values["branch"])
    order_compaction(branch, context=context)
    return {"changed": [f"{branch.repository}/{branch.name}"], "dry_run": context.is_dry_run}


def _collect(values: Values, context: ActionContext) -> dict[str, Any]:
    repository = find_repository(values["tenant"], values["repository"])
    done = collect_garbage(repository, context=context)
    found = outcome_json(done) | {"names": list(done.names)}
    return {"changed": [str(repository)], "dry_run": context.is_dry_run, **found}


def _collected(outcomes: Sequence[dict[str, Any]], is_dry_run: bool) -> dict[str, Any]:
    counts, names = [], []
    for outcome in outcomes:
        [repository] = outcome["changed"]
        for name, what in GARBAGE.items():
            count = show.size_text(outcome[name]) if name == "bytes_deleted" else show.count_text(outcome[name])
            counts.append({"what": what, "count": count, "repository": repository})
        names += [{"file or object": name, "repository": repository} for name in outcome["names"]]
    changed = [one["changed"][0] for one in outcomes]
    return {"counts": counts, "the_first_that_go": names, "changed": changed}


def _restore(values: Values, context: ActionContext) -> dict[str, Any]:
    repository = deleted_repository(values["tenant"], values["repository"], values["id"])
    restore_repository(repository, context=context)
    return {"changed": [str(repository)], "id": repository.pk, "dry_run": context.is_dry_run}


def _repositories(rows: Sequence[Repository]) -> list[dict[str, Any]]:
    return [{"tenant": row.tenant, "repository": row.name} for row in rows]


def _branches(rows: Sequence[Branch]) -> list[dict[str, Any]]:
    return [{"tenant": row.repository.tenant, "repository": row.repository.name, "branch": row.name} for row in rows]


def _is_active(row: Repository) -> bool:
    return row.state == RepositoryState.ACTIVE


CHANGE_COMPACTION = OperatorAction(
    operation="change_compaction",
    label="Change settings",
    about="Sets the thresholds and the budget of compaction, and the retention of unreferenced data. Changes apply "
    "from the sensor's next round.",
    targets=(TENANT, REPOSITORY),
    fields=(SETTINGS,),
    apply=_change,
    outcome=ChangedSerializer,
    of_rows=_repositories,
    fits=_is_active,
    initial=form_values,
)
COLLECT = OperatorAction(
    operation="collect_garbage",
    label="Collect garbage",
    about="Finds unreferenced files, objects and rows. The preview deletes nothing and lists what would be deleted "
    "now; condemned files are deleted after the grace period. Reads every range of the repository.",
    targets=(TENANT, REPOSITORY),
    apply=_collect,
    outcome=ChangedSerializer,
    of_rows=_repositories,
    fits=_is_active,
    describe=_collected,
)
COMPACT_NOW = OperatorAction(
    name="compact-now",
    operation="compact_branch",
    label="Compact now",
    about="Compacts branches within seconds, regardless of thresholds, cooldown and budget. The visible content of "
    "the branches does not change.",
    targets=(
        TENANT,
        REPOSITORY,
        Text("branch", "Branch", length_max=NAME_MAX, default="main"),
    ),
    apply=_compact,
    outcome=ChangedSerializer,
    may_conflict=True,
    of_rows=_branches,
)
RESTORE = OperatorAction(
    name="restore",
    operation="restore_repository",
    label="Restore",
    about="Restores deleted repositories with all their content. Fails if deletion of their files has started, or if "
    "another repository uses the name or the storage namespace.",
    targets=(
        TENANT,
        REPOSITORY,
        Number("id", "Id", "Required if several deleted repositories have this name."),
    ),
    apply=_restore,
    outcome=ChangedSerializer,
    may_conflict=True,
    of_rows=lambda rows: [{**place, "id": row.pk} for row, place in zip(rows, _repositories(rows), strict=True)],
    fits=lambda row: row.state == RepositoryState.DELETED,
)

REPOSITORY_ACTIONS = (CHANGE_COMPACTION, COLLECT, RESTORE)
BRANCH_ACTIONS = (COMPACT_NOW,)
