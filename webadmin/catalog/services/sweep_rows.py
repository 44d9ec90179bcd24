"""Deletes rows that nothing names: of retired tokens, of builds whose process died, of deleted repositories."""

from __future__ import annotations

import logging

from django.db import connection, transaction

from engine.planning.staging.orphans import RetiredToken, tokens_to_sweep
from webadmin.catalog.lane_models import Compaction
from webadmin.catalog.models import (
    Branch,
    BranchLoad,
    BranchToken,
    Build,
    CondemnedFile,
    Repository,
    StagedEntry,
    StagedInterval,
)
from webadmin.catalog.places import catalog_store, folder_of
from webadmin.catalog.services.end_compactions import end_all
from webadmin.catalog.states import CompactionState, TokenState, Why
from webadmin.database.dialect import clock_ms

log = logging.getLogger(__name__)

ROWS_AT_ONCE = 5_000
BUILD_MS_MAX = 6 * 3_600_000
"""A build of a process that began longer ago is over, whatever became of the process."""
_DELETE_ROWS = (
    f"DELETE FROM {StagedEntry._meta.db_table} WHERE branch_id = %s AND token_id = %s AND key IN "  # noqa: S608
    f"(SELECT key FROM {StagedEntry._meta.db_table} WHERE token_id = %s ORDER BY key LIMIT {ROWS_AT_ONCE})"
)


def sweep_tokens(repository: Repository, *, before_ms: int, is_dry_run: bool = False) -> int:
    """Delete the rows of tokens that were retired before then and that no build rests on; return how many."""
    retired = {
        str(pk): (branch_id, retired_ms)
        for pk, branch_id, retired_ms in BranchToken.objects.filter(
            repository_id=repository.pk, state=TokenState.RETIRED
        ).values_list("pk", "branch_id", "retired_ms")
    }
    named = {
        str(token)
        for basis in Build.objects.filter(repository_id=repository.pk).values_list("basis", flat=True)
        for token in basis.get("sealed", ())
    }
    going = tokens_to_sweep(
        (RetiredToken(token, at_ms / 1000) for token, (_, at_ms) in retired.items()), named, before=before_ms / 1000
    )
    if is_dry_run:
        return StagedEntry.objects.filter(token_id__in=[int(token) for token in going]).count()
    return sum(_sweep_token(int(token), retired[token][0]) for token in going)


def _sweep_token(token: int, branch_id: int) -> int:
    """Delete a token with its rows, some thousand at a time: others write meanwhile."""
    count = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_DELETE_ROWS, [branch_id, token, token])
            deleted = cursor.rowcount
        count += deleted
        if deleted < ROWS_AT_ONCE:
            break
    StagedInterval.objects.filter(token_id=token).delete()
    BranchToken.objects.filter(pk=token, state=TokenState.RETIRED).delete()
    return count


def sweep_builds() -> int:
    """Delete the rows of builds that cannot be under way any more; return how many."""
    now_ms = clock_ms()
    own = Compaction.objects.filter(state=CompactionState.OPEN).values("build_id")
    dead = Build.objects.filter(begun_ms__lt=now_ms - BUILD_MS_MAX).exclude(kind=Why.COMPACTION, pk__in=own)
    count, _ = dead.delete()
    return count


def sweep_repository(repository: Repository) -> int:
    """Delete all of a repository that nobody reaches any more; return how many objects went. Safe to do again."""
    end_all(repository, because="the repository was deleted")
    Build.objects.filter(repository_id=repository.pk, begun_ms__lt=clock_ms() - BUILD_MS_MAX).delete()
    store, count = catalog_store(), 0
    for info in list(store.list(folder_of(repository))):
        store.delete(info.key)
        count += 1
    if Build.objects.filter(repository_id=repository.pk).exists():
        return count  # what it still puts is deleted by the next round
    for token, branch_id in list(
        BranchToken.objects.filter(repository_id=repository.pk).values_list("pk", "branch_id")
    ):
        BranchToken.objects.filter(pk=token).update(state=TokenState.RETIRED, retired_ms=clock_ms())
        _sweep_token(token, branch_id)
    with transaction.atomic():
        branches = list(Branch.objects.filter(repository=repository).values_list("pk", flat=True))
        BranchLoad.objects.filter(pk__in=branches).delete()
        CondemnedFile.objects.filter(repository_id=repository.pk).delete()
        repository.delete()
    log.info("catalog_repository_swept objects=%d", count)
    return count
