"""The catalog lane's part of the progress report."""

from __future__ import annotations

from collections import Counter

from engine.schedule.progress import first_names
from webadmin.lanes.catalog.branch_loads import watched_branches
from webadmin.lanes.catalog.lane_models import BranchWatch
from webadmin.lanes.catalog.models import Repository
from webadmin.lanes.catalog.states import RepositoryState
from webadmin.schedule.lanes import Waiting


def branches_waiting(tenant: str | None) -> list[Waiting]:
    """Return, by repository, the branches that should be compacted and are not being compacted."""
    wanted: Counter[Repository] = Counter()
    own = None
    if tenant is not None:
        wanted_ones = BranchWatch.objects.filter(is_wanted=True, branch__repository__tenant=tenant)
        own = list(wanted_ones.values_list("branch_id", flat=True))
    for one in watched_branches(own):
        wanted[one.branch.repository] += one.load.was_wanted and not one.load.is_running
    return [
        Waiting(
            tenant=repository.tenant,
            name=str(repository),
            count=count,
            unit="branch",
            size_bytes=None,
            words="when their turn comes: the sensor looks every few seconds",
        )
        for repository, count in wanted.items()
        if count
    ]


def repositories_kept(tenant: str) -> list[str]:
    """Return a sentence that names the repositories of a tenant that a request to delete its data does not change."""
    rows = Repository.objects.filter(tenant=tenant).exclude(state=RepositoryState.DELETING).order_by("name")
    names = [row.name if row.state == RepositoryState.ACTIVE else f"{row.name}, deleted" for row in rows]
    if not names:
        return []
    word = "repository" if len(names) == 1 else "repositories"
    return [
        f"{len(names)} {word} of the catalog ({first_names(names)}): not hidden. Branches, commits and objects stay as "
        "they are; delete the repositories over the catalog's API."
    ]
