"""Read the compaction signals of branches from the database, in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Count, F, Min, Q, Sum

from engine.lanes.catalog.plan.sensor import BranchLoad as Load
from engine.lanes.catalog.plan.sensor import Budget
from webadmin.base.database.dialect import clock_ms
from webadmin.lanes.catalog.lane_models import IS_PARKED, BranchWatch, Compaction
from webadmin.lanes.catalog.models import Branch, BranchLoad, BranchToken, Build, Repository
from webadmin.lanes.catalog.states import CompactionState, RepositoryState, TokenState, Why

HOUR_MS = 3_600_000
COMMIT_MS_MAX = 15 * 60_000
"""A commit that was started longer ago does not delay compaction: its process died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedBranch:
    """A branch with its load and the last decision of the sensor (None: no decision yet).

    ``staged`` is the approximate number of rows written since the last published compaction or commit. ``failed`` is
    the error of a compaction whose job failed too often and is parked, empty if there is none.
    """

    branch: Branch
    load: Load
    staged: int
    watch: BranchWatch | None
    failed: str = ""


def watched_branches(branch_ids: Collection[int] | None = None) -> list[WatchedBranch]:
    """Return the branches that have counted writes, sealed tokens or a requested compaction.

    With ``branch_ids``, return exactly the branches with these ids.
    """
    now_ms = clock_ms()
    tokens = _sealed(branch_ids)
    counted = BranchLoad.objects.all() if branch_ids is None else BranchLoad.objects.filter(pk__in=branch_ids)
    counts = {row.branch_id: row for row in counted}
    ids = tokens.keys() | counts.keys() if branch_ids is None else set(branch_ids)
    watched = Q(pk__in=ids)
    if branch_ids is None:
        watched |= ~Q(is_wanted=False, ordered_by="", held="")
    watches = {row.branch_id: row for row in BranchWatch.objects.filter(watched)}
    under_way = Compaction.objects.filter(state=CompactionState.OPEN)
    parked = dict(under_way.filter(IS_PARKED).values_list("branch_id", "ended_because"))
    wanted = ids | watches.keys() | (parked.keys() if branch_ids is None else set())
    busy = set(under_way.values_list("branch_id", flat=True)) - parked.keys()
    committed = set(
        Build.objects.filter(kind=Why.COMMIT, begun_ms__gt=now_ms - COMMIT_MS_MAX).values_list("branch_id", flat=True)
    )
    branches = Branch.objects.filter(pk__in=wanted, repository__state=RepositoryState.ACTIVE)
    found = []
    for branch in branches.select_related("repository").order_by("repository_id", "name"):
        sealed = tokens.get(branch.pk, _Sealed())
        count, watch = counts.get(branch.pk) or BranchLoad(branch_id=branch.pk), watches.get(branch.pk)
        is_taken = branch.pk in committed
        load = Load(
            branch=branch.name,
            tombstones=max(count.tombstones, sealed.tombstones),
            sealed_rows=sealed.rows,
            sealed_tokens=sealed.count,
            sealed_age_s=None if is_taken or sealed.first_ms is None else (now_ms - sealed.first_ms) // 1000,
            wasteful_lists=count.wasteful_lists,
            bytes_to_rewrite=watch.last_bytes if watch else 0,
            begun_s_ago=None if watch is None or watch.begun_ms is None else (now_ms - watch.begun_ms) / 1000,
            took_s=watch.took_ms / 1000 if watch else 0.0,
            lost_in_a_row=watch.lost_in_a_row if watch else 0,
            is_running=branch.pk in busy,
            was_wanted=watch.is_wanted if watch else False,
        )
        failed = parked.get(branch.pk)
        error = "" if failed is None else failed or "its job was parked within the last seconds"
        found.append(WatchedBranch(branch=branch, load=load, staged=count.rows, watch=watch, failed=error))
    return found


def budgets_of(repositories: Collection[Repository]) -> dict[int, Budget]:
    """Return the present resource use of compactions by repository id; two queries."""
    own = Compaction.objects.filter(repository__in=repositories).order_by()
    running = own.filter(~IS_PARKED, state=CompactionState.OPEN).values("repository_id").annotate(count=Count("id"))
    since_ms = clock_ms() - HOUR_MS
    written = own.filter(finished_ms__gt=since_ms).values("repository_id").annotate(size=Sum("bytes_written"))
    counts = {row["repository_id"]: row["count"] for row in running}
    sizes = {row["repository_id"]: row["size"] or 0 for row in written}
    return {one.pk: Budget(running=counts.get(one.pk, 0), bytes_last_hour=sizes.get(one.pk, 0)) for one in repositories}


@dataclass(frozen=True, slots=True)
class _Sealed:
    """Sums over the sealed tokens of a branch."""

    count: int = 0
    rows: int = 0
    tombstones: int = 0
    first_ms: int | None = None


def _sealed(branch_ids: Collection[int] | None) -> dict[int, _Sealed]:
    rows = BranchToken.objects.filter(state=TokenState.SEALED)
    if branch_ids is not None:
        rows = rows.filter(branch_id__in=branch_ids)
    totals = (
        rows.order_by()
        .values("branch_id")
        .annotate(
            count=Count("id"),
            rows=Sum("row_count"),
            tombstones=Sum("tombstone_count"),
            first_ms=Min(F("sealed_ms")),
        )
    )
    return {
        row["branch_id"]: _Sealed(row["count"], row["rows"] or 0, row["tombstones"] or 0, row["first_ms"])
        for row in totals
    }
