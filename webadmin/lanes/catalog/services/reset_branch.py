"""Drop uncommitted changes: all of a branch, those of a prefix, or those of a key."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

from engine.formats.ranges.model import Entry, check_key, prefix_end
from engine.lanes.catalog.diff import reset_rows
from engine.lanes.catalog.plan.branch import (
    BranchRecord,
    BranchUpdate,
    Refusal,
    base_version_of,
    insert_token,
    is_write_valid,
    reset,
    write_ticket,
)
from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.base.database.dialect import clock_ms, insert_rows, one_snapshot
from webadmin.lanes.catalog.errors import BranchBusy, BranchMissing, FilesCondemned
from webadmin.lanes.catalog.models import BranchToken, Build, Repository, StagedEntry
from webadmin.lanes.catalog.services.branches import find_branch, missing
from webadmin.lanes.catalog.services.compaction.builds import check_open, open_build
from webadmin.lanes.catalog.services.compaction.count_load import forget_load
from webadmin.lanes.catalog.services.diffs import uncommitted
from webadmin.lanes.catalog.services.protection import Blocked, check_allowed
from webadmin.lanes.catalog.services.records import change_record, read_record, record_named, seal_branch
from webadmin.lanes.catalog.services.staged_rows import overlay_of
from webadmin.lanes.catalog.services.write_objects import write_rows
from webadmin.lanes.catalog.states import TokenState, Why

TRIES = 10
ROWS_AT_ONCE = 5000


def reset_branch(repository: Repository, branch_name: str, *, context: ActionContext) -> None:
    """Drop all uncommitted changes of a branch. Raises BranchMissing."""
    check_allowed(repository, branch_name, Blocked.STAGING_WRITE)
    branch = find_branch(repository, branch_name)

    def decide(record: BranchRecord | None, token: str) -> BranchUpdate | Refusal:
        return Refusal.GONE if record is None else reset(record, token)

    def then(before: BranchRecord, after: BranchRecord) -> None:
        _audit(repository, branch_name, None, context)
        forget_load(branch.pk)

    if change_record(branch.pk, decide, why=Why.RESET, then=then) is Refusal.GONE:
        raise BranchMissing(missing(repository, branch_name))


def reset_prefix(repository: Repository, branch_name: str, prefix: bytes, *, context: ActionContext) -> None:
    """Drop the uncommitted changes of all keys with a prefix; others stay.

    The inverse changes are written to a separate token above the sealed ones. Raises BranchMissing, BranchBusy.
    """
    check_allowed(repository, branch_name, Blocked.STAGING_WRITE)
    branch = find_branch(repository, branch_name)
    for _ in range(TRIES):
        record = seal_branch(branch.pk, why=Why.RESET)
        if record is None:
            raise BranchMissing(missing(repository, branch_name))
        with open_build(repository, Why.RESET, branch_id=branch.pk) as build:
            token = _write_undoing(repository, record, prefix, build)
            if token is not None and _add_overlay(
                record, token, build, lambda: _audit(repository, branch_name, prefix, context)
            ):
                return
        # There is nothing to undo if the layers are still those that were read.
        if token is None and is_write_valid(write_ticket(record), read_record(branch.pk), decides=True):
            return
    raise BranchBusy(f"others changed {branch_name} in each of {TRIES} tries")


def reset_key(repository: Repository, branch_name: str, key: bytes) -> None:
    """Drop the uncommitted change of a key, if there is one. Raises BranchMissing, BranchBusy, InvalidEntryKey."""
    check_key(key)
    check_allowed(repository, branch_name, Blocked.STAGING_WRITE)
    for _ in range(TRIES):
        record = record_named(repository.pk, branch_name)
        if record is None:
            raise BranchMissing(missing(repository, branch_name))
        change = next(uncommitted(repository, record, overlay_of(record), key, key + b"\0"), None)
        rows = [Entry(*row) for row in reset_rows([change])] if change else []
        if write_rows(record, rows) and is_write_valid(
            write_ticket(record), read_record(int(record.uid)), decides=True
        ):
            return
    raise BranchBusy(f"others changed {branch_name} in each of {TRIES} tries")


def _add_overlay(record: BranchRecord, token: int, build: Build, audit: Callable[[], None]) -> bool:
    """Put a token above the sealed ones, if these are still those that were read and all its rows exist."""
    base_version = base_version_of(record)

    def decide(found: BranchRecord | None, _: str) -> BranchUpdate | Refusal:
        return insert_token(found, base_version, str(token))

    def then(before: BranchRecord, after: BranchRecord) -> None:
        check_open(build)
        audit()

    try:
        return isinstance(change_record(int(record.uid), decide, why=Why.RESET, then=then), BranchUpdate)
    except FilesCondemned:
        return False


def _write_undoing(repository: Repository, record: BranchRecord, prefix: bytes, build: Build) -> int | None:
    """Write the inverse of the sealed changes of a prefix to a token that no record names yet; None if there are none.

    Until then the token counts as retired but is protected by the build that names it: after a crash its rows are
    swept.
    """
    at_ms = clock_ms()
    uid, token = int(record.uid), None
    with one_snapshot():
        overlay = overlay_of(record, record.sealed)
        rows = list(reset_rows(uncommitted(repository, record, overlay, prefix, prefix_end(prefix))))
    for start in range(0, len(rows), ROWS_AT_ONCE):
        if token is None:
            token = _hidden_token(repository, uid, build, at_ms)
        insert_rows(
            StagedEntry,
            ("branch_id", "key", "token_id", "identity", "payload", "generation", "written_ms"),
            [(uid, key, token, identity, payload, 1, at_ms) for key, identity, payload in rows[start:][:ROWS_AT_ONCE]],
        )
    return token


def _hidden_token(repository: Repository, branch_id: int, build: Build, at_ms: int) -> int:
    with transaction.atomic():
        made = BranchToken.objects.create(
            repository_id=repository.pk,
            branch_id=branch_id,
            state=TokenState.RETIRED,
            position=-1,
            created_ms=at_ms,
            retired_ms=at_ms,
        )
        Build.objects.filter(pk=build.pk).update(base_version={"sealed": [str(made.pk)]})
    return made.pk


def _audit(repository: Repository, branch_name: str, prefix: bytes | None, context: ActionContext) -> None:
    entry = {"branch": branch_name, "why": context.why}
    if prefix is not None:
        entry["prefix"] = prefix.decode("utf-8", "backslashreplace")
    record_audit(actor=context.actor, action="catalog_reset", target=str(repository), detail=entry)
