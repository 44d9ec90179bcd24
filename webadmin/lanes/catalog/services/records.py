"""Read and write branch records; the only code that writes the rows of branches and tokens.

The sealed tokens of a record are separate rows. They change only together with the branch's row, in one transaction
that locks that row, and only from the generation that was read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db import transaction

from engine.lanes.catalog.plan.branch import BranchRecord, BranchUpdate, Refusal, seal
from webadmin.base.database.dialect import clock_ms, execute_deferred, locked, reserve_ids
from webadmin.lanes.catalog.models import Branch, BranchToken, StagedEntry
from webadmin.lanes.catalog.states import TokenState, Why

_RECORD = (
    "SELECT b.id, b.head, b.staging, b.snapshot, b.epoch, b.generation, t.id FROM catalog_branch b "  # noqa: S608
    f"LEFT JOIN catalog_branchtoken t ON t.branch_id = b.id AND t.state = '{TokenState.SEALED.value}' "
    "WHERE {} ORDER BY t.position DESC"
)
_BY_ID = _RECORD.format("b.id = %s")
_BY_NAME = _RECORD.format("b.repository_id = %s AND b.name = %s")

Decide = Callable[[BranchRecord | None, str], BranchUpdate | BranchRecord | Refusal]
"""Takes the record and an unused token id; returns the next record, the same record, or a refusal."""


def read_record(branch_id: int) -> BranchRecord | None:
    """Return the record of a branch, None if it is deleted; one statement."""
    return _record(execute_deferred(_BY_ID, [branch_id])())


def record_named(repository_id: int, name: str) -> BranchRecord | None:
    """Return the record of a branch by its name, None if there is none; one statement."""
    return _record(execute_deferred(_BY_NAME, [repository_id, name])())


def change_record(
    branch_id: int,
    decide: Decide,
    *,
    why: Why,
    then: Callable[[BranchRecord, BranchRecord], None] = lambda before, after: None,
) -> BranchUpdate | Refusal:
    """Write the record that ``decide`` returns for the present one; ``then`` runs in the same short transaction.

    Tokens that the new record no longer names are retired. An exception in ``then`` rolls everything back.
    """
    with transaction.atomic():
        # The tokens are read in a separate statement after the one that may have waited for the row lock.
        before = read_record(branch_id) if list(locked(Branch.objects.filter(pk=branch_id)).values_list("pk")) else None
        decided = decide(before, str(reserve_ids(BranchToken, 1)[0]))
        if isinstance(decided, Refusal):
            return decided
        moved = decided if isinstance(decided, BranchUpdate) else BranchUpdate(decided)
        assert before is not None, "there is no next record of a branch that is gone"
        if moved.branch.generation != before.generation:
            _write(branch_id, before, moved, why)
        then(before, moved.branch)
        return moved


def seal_branch(branch_id: int, *, why: Why) -> BranchRecord | None:
    """Seal the staging token unless it is empty; return the record, whose sealed tokens can be built.

    None if the branch is deleted. All writes acknowledged before are in the sealed tokens.
    """

    def sealed(record: BranchRecord | None, token: str) -> BranchUpdate | BranchRecord | Refusal:
        if record is None:
            return Refusal.GONE
        return seal(record, token, is_empty=not StagedEntry.objects.filter(token_id=int(record.staging)).exists())

    moved = change_record(branch_id, sealed, why=why)
    return moved.branch if isinstance(moved, BranchUpdate) else None


def first_record(branch: Branch) -> None:
    """Insert a new branch with its staging token; call it in a transaction."""
    branch.save(force_insert=True)
    at_ms = clock_ms()
    token = BranchToken.objects.create(
        repository_id=branch.repository_id, branch_id=branch.pk, position=0, created_ms=at_ms
    )
    Branch.objects.filter(pk=branch.pk).update(staging=token.pk)
    branch.staging = token.pk


def drop_record(branch_id: int) -> None:
    """Delete a branch and retire its tokens. Call it in a transaction."""
    Branch.objects.filter(pk=branch_id).delete()
    BranchToken.objects.filter(branch_id=branch_id).exclude(state=TokenState.RETIRED).update(
        state=TokenState.RETIRED, retired_ms=clock_ms()
    )


def _write(branch_id: int, before: BranchRecord, moved: BranchUpdate, why: Why) -> None:
    after, at_ms = moved.branch, clock_ms()
    written = Branch.objects.filter(pk=branch_id, generation=before.generation).update(
        head=after.head,
        staging=int(after.staging),
        snapshot=after.snapshot,
        epoch=after.epoch,
        generation=after.generation,
    )
    assert written == 1, "the row is held"
    tokens = BranchToken.objects.filter(branch_id=branch_id)
    gone = [int(token) for token in before.tokens if token not in after.tokens]
    if gone:
        tokens.filter(pk__in=gone).update(state=TokenState.RETIRED, retired_ms=at_ms)
    if after.staging != before.staging and before.staging in after.sealed:
        tokens.filter(pk=int(before.staging)).update(state=TokenState.SEALED, sealed_ms=at_ms, reason=why)
    _put_in_order(branch_id, after.tokens, why, at_ms)


def _put_in_order(branch_id: int, tokens: Sequence[str], why: Why, at_ms: int) -> None:
    """Assign ascending positions after the last one to the tokens (newest first), and insert or adopt new ones."""
    known = {
        str(pk): (position, state)
        for pk, position, state in BranchToken.objects.filter(pk__in=map(int, tokens)).values_list(
            "pk", "position", "state"
        )
    }
    repository_id = Branch.objects.values_list("repository_id", flat=True).get(pk=branch_id)
    below = -1
    for number, token in reversed(list(enumerate(tokens))):
        position, state = known.get(token, (-1, ""))
        wanted = TokenState.STAGING if number == 0 else TokenState.SEALED
        if position <= below or state != wanted:
            below = max(below + 1, position)
            values: dict[str, Any] = {"position": below, "state": wanted, "retired_ms": None}
            if wanted == TokenState.SEALED and state != wanted:
                values |= {"sealed_ms": at_ms, "reason": why}
            made = values | {"repository_id": repository_id, "branch_id": branch_id, "created_ms": at_ms}
            BranchToken.objects.update_or_create(pk=int(token), defaults=values, create_defaults=made)
        else:
            below = position


def _record(rows: list[tuple[Any, ...]]) -> BranchRecord | None:
    if not rows:
        return None
    uid, head, staging, snapshot, epoch, generation, _ = rows[0]
    return BranchRecord(
        uid=str(uid),
        head=head,
        staging=str(staging),
        sealed=tuple(str(token) for *_, token in rows if token is not None),
        snapshot=snapshot,
        epoch=epoch,
        generation=generation,
    )
