"""Status of repositories: compaction signals, recent compactions, and unreachable files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from django.db.models import Count, Max, Sum

from webadmin.base.database.dialect import clock_ms
from webadmin.lanes.catalog.branch_loads import HOUR_MS, WatchedBranch, watched_branches
from webadmin.lanes.catalog.lane_models import Collection, Compaction
from webadmin.lanes.catalog.models import Branch, BranchToken, CondemnedFile, Repository
from webadmin.lanes.catalog.states import CompactionState, RepositoryState, TokenState


@dataclass(slots=True)
class RepositoryStatus:
    """Counts of a repository; ``compactions``, ``took_ms`` (the longest) and ``written`` cover the last hour."""

    branches: int = 0
    sealed_tokens: int = 0
    tombstones: int = 0
    oldest_sealed_ms: int = 0
    wanted: int = 0
    running: int = 0
    parked: int = 0
    compactions: dict[str, int] = field(default_factory=dict)
    took_ms: int = 0
    written: int = 0
    orphans: int = 0
    retired_tokens: int = 0
    collection: Collection | None = None
    most_sealed: WatchedBranch | None = None

    @property
    def is_not_collected(self) -> bool:
        """Return whether the last garbage collection failed."""
        return bool(self.collection and self.collection.error)

    @property
    def failed(self) -> int:
        """Return the number of compactions that failed within the last hour or whose job is parked after failures."""
        return self.compactions.get(CompactionState.FAILED, 0) + self.parked


def statuses(repositories: Iterable[Repository]) -> dict[int, RepositoryStatus]:
    """Return the status of each repository by row id; a fixed number of queries."""
    found = {one.pk: RepositoryStatus() for one in repositories}
    own = {"repository__in": list(found)}
    for row in Branch.objects.filter(**own).order_by().values("repository_id").annotate(count=Count("id")):
        found[row["repository_id"]].branches = row["count"]
    for watched in watched_branches():
        if watched.branch.repository_id in found:
            _add(found[watched.branch.repository_id], watched)
    done = Compaction.objects.filter(**own, finished_ms__gt=clock_ms() - HOUR_MS).order_by()
    for row in done.values("repository_id", "state").annotate(
        count=Count("id"), size=Sum("bytes_written"), begun=Max("begun_ms")
    ):
        now = found[row["repository_id"]]
        now.compactions[row["state"]] = row["count"]
        now.written += row["size"] or 0
    for repository_id, begun_ms, finished_ms in done.filter(state=CompactionState.PUBLISHED).values_list(
        "repository_id", "begun_ms", "finished_ms"
    ):
        now = found[repository_id]
        now.took_ms = max(now.took_ms, (finished_ms or begun_ms) - begun_ms)
    _add_garbage(found)
    return found


def _add(now: RepositoryStatus, one: WatchedBranch) -> None:
    load = one.load
    now.sealed_tokens += load.sealed_tokens
    now.tombstones += load.tombstones
    now.oldest_sealed_ms = max(now.oldest_sealed_ms, round(1000 * (load.sealed_age_s or 0)))
    now.running += load.is_running
    now.parked += bool(one.failed)
    now.wanted += load.was_wanted and not load.is_running
    if now.most_sealed is None or load.sealed_tokens > now.most_sealed.load.sealed_tokens:
        now.most_sealed = one


def _add_garbage(found: dict[int, RepositoryStatus]) -> None:
    listed = CondemnedFile.objects.filter(repository_id__in=list(found), deleted_ms=None).order_by()
    for row in listed.values("repository_id").annotate(count=Count("id")):
        found[row["repository_id"]].orphans = row["count"]
    retired = BranchToken.objects.filter(repository_id__in=list(found), state=TokenState.RETIRED).order_by()
    for row in retired.values("repository_id").annotate(count=Count("id")):
        found[row["repository_id"]].retired_tokens = row["count"]
    last = Collection.objects.filter(repository__in=list(found)).order_by()
    newest = last.values("repository_id").annotate(last=Max("id")).values_list("last", flat=True)
    for collection in Collection.objects.filter(pk__in=list(newest)):
        found[collection.repository_id].collection = collection


def active_repositories() -> list[Repository]:
    """Return all active repositories by name."""
    return list(Repository.objects.filter(state=RepositoryState.ACTIVE).order_by("tenant", "name"))


def deleted_repositories() -> list[Repository]:
    """Return the deleted repositories that can be restored, by name, the latest deletion first."""
    return list(Repository.objects.filter(state=RepositoryState.DELETED).order_by("tenant", "name", "-deleted_ms"))


def states_within_hour(now: RepositoryStatus) -> dict[str, int]:
    """Return how many compactions ended in each state within the last hour; one whose job is parked has failed."""
    ends = [state.value for state in CompactionState if state != CompactionState.OPEN]
    return defaultdict(int, dict.fromkeys(ends, 0) | now.compactions | {CompactionState.FAILED.value: now.failed})
