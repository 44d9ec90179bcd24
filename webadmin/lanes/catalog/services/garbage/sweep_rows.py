"""Delete unreferenced rows: of retired tokens, of builds whose process died, of deleted repositories."""

from __future__ import annotations

import logging

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, QuerySet

from engine.lanes.catalog.plan.orphans import RetiredToken, tokens_to_sweep
from webadmin.base.database.dialect import clock_ms, one_snapshot
from webadmin.base.database.vacuum import vacuum_table
from webadmin.lanes.catalog.lane_models import Compaction
from webadmin.lanes.catalog.models import (
    Branch,
    BranchLoad,
    BranchToken,
    Build,
    CondemnedFile,
    CondemnedObject,
    Repository,
    StagedEntry,
    StagedInterval,
)
from webadmin.lanes.catalog.places import catalog_store, folder_of
from webadmin.lanes.catalog.states import CompactionState, TokenState, Why
from webadmin.schedule.services.guard_deletions import allow_deletions

log = logging.getLogger(__name__)

ROWS_AT_ONCE = 10_000
OBJECTS_PER_POSITION = 500
"""Number of deletions between two checks of the log's position."""
ROWS_A_ROUND = 2_000_000
"""Number of deleted rows after which other tasks of the same process run."""
ROWS_TIDIED = 50_000
"""Number of deleted rows after which the table is vacuumed: dead rows slow down scans."""
BUILD_SILENT_MS = 15 * 60_000
"""Age of the last heartbeat after which a build counts as dead. If it is still running, its publication is refused."""
_DELETE_ROWS = (
    f"DELETE FROM {StagedEntry._meta.db_table} WHERE branch_id = %s AND token_id = %s AND key IN "  # noqa: S608
    f"(SELECT key FROM {StagedEntry._meta.db_table} WHERE token_id = %s LIMIT {ROWS_AT_ONCE})"
)


def sweep_tokens(repository: Repository, *, before_ms: int, is_dry_run: bool = False) -> int:
    """Delete the rows of tokens retired before ``before_ms`` that no build uses; return how many."""
    retired, named = _retired(BranchToken.objects.filter(repository_id=repository.pk))
    going = tokens_to_sweep(
        (RetiredToken(token, at_ms / 1000) for token, (_, at_ms) in retired.items()), named, before=before_ms / 1000
    )
    if is_dry_run:
        return StagedEntry.objects.filter(token_id__in=[int(token) for token in going]).count()
    return sum(_sweep_token(int(token), retired[token][0]) for token in going)


def sweep_retired_rows() -> int:
    """Delete the rows of retired tokens that no build uses at once, since listings scan them; return how many.

    No reader needs them: reads use one snapshot, and writes decided by reading check the epoch. The tokens stay for
    their grace period, for rows of late writers.
    """
    rows, intervals = (model.objects.filter(token_id=OuterRef("pk")) for model in (StagedEntry, StagedInterval))
    retired, named = _retired(BranchToken.objects.filter(Exists(rows) | Exists(intervals)))
    count = 0
    for token, (branch_id, _) in retired.items():
        if token not in named and count < ROWS_A_ROUND:
            count += _delete_rows(int(token), branch_id)
    if count >= ROWS_TIDIED:
        vacuum_table(StagedEntry)
    return count


def _retired(tokens: QuerySet[BranchToken]) -> tuple[dict[str, tuple[int, int]], set[str]]:
    """Return the retired tokens with branch and time, and all tokens that builds use or add.

    Both are read in one snapshot: a token that is to be added to a branch counts as retired, and its build names it
    before its first row.
    """
    with one_snapshot():
        found = tokens.filter(state=TokenState.RETIRED).values_list("pk", "branch_id", "retired_ms")
        retired = {str(pk): (branch_id, retired_ms or 0) for pk, branch_id, retired_ms in found}
        bases = list(Build.objects.values_list("base_version", flat=True))
    return retired, {str(token) for base_version in bases for token in base_version.get("sealed", ())}


def _sweep_token(token: int, branch_id: int) -> int:
    """Delete a token with its rows."""
    count = _delete_rows(token, branch_id)
    BranchToken.objects.filter(pk=token, state=TokenState.RETIRED).delete()
    return count


def _delete_rows(token: int, branch_id: int) -> int:
    """Delete the rows of a token, some thousand at a time, so that concurrent writes are not blocked."""
    count = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_DELETE_ROWS, [branch_id, token, token])
            deleted: int = cursor.rowcount
        count += deleted
        if deleted < ROWS_AT_ONCE:
            break
    StagedInterval.objects.filter(token_id=token).delete()
    return count


def sweep_builds() -> int:
    """Delete the rows of builds whose process died, except those of compactions; return how many."""
    own = Compaction.objects.filter(state=CompactionState.OPEN).values("build_id")
    dead = Build.objects.filter(heartbeat_ms__lt=clock_ms() - BUILD_SILENT_MS).exclude(kind=Why.COMPACTION, pk__in=own)
    count, _ = dead.delete()
    return count


def sweep_repository(repository: Repository) -> int:
    """Delete all rows and files of a deleted repository; return the number of deleted objects. Safe to repeat.

    Raises StorageError, and LogBehind if the database went back in time meanwhile.
    """
    Build.objects.filter(repository_id=repository.pk, heartbeat_ms__lt=clock_ms() - BUILD_SILENT_MS).delete()
    store, count = catalog_store(), 0
    for info in list(store.list(folder_of(repository))):
        if count and count % OBJECTS_PER_POSITION == 0:
            allow_deletions()
        store.delete(info.key)
        count += 1
    if Build.objects.filter(repository_id=repository.pk).exists():
        return count  # files that a running build still writes are deleted by the next round
    for token, branch_id in list(
        BranchToken.objects.filter(repository_id=repository.pk).values_list("pk", "branch_id")
    ):
        BranchToken.objects.filter(pk=token).update(state=TokenState.RETIRED, retired_ms=clock_ms())
        _sweep_token(token, branch_id)
    with transaction.atomic():
        branches = list(Branch.objects.filter(repository=repository).values_list("pk", flat=True))
        BranchLoad.objects.filter(pk__in=branches).delete()
        CondemnedFile.objects.filter(repository_id=repository.pk).delete()
        CondemnedObject.objects.filter(repository_id=repository.pk).delete()
        repository.delete()
    log.info("catalog_repository_swept objects=%d", count)
    return count
