"""The record of a branch, and the only ways in which it changes.

Every function takes a record and returns the next one, or why not; the caller writes it if the record's generation is
still the one it read (one conditional update, in which tokens that are retired are noted, too). Leases and fencing are
the schedule's: nothing of them is in the record.

A *basis* is what a build rests on: head, snapshot and sealed tokens of one record. All of these are immutable, so a
build is a pure function of its basis. It may be published while the branch still rests on the same, also when newer
tokens were sealed meanwhile: they stay.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace


class Refusal(enum.Enum):
    """Why a build cannot be published; the record is as it was."""

    GONE = "the branch was deleted, or is another of the same name"
    LOST_HEAD = "the head moved"
    LOST_SNAPSHOT = "another compaction was published"
    LOST_TOKENS = "sealed tokens were retired"
    DIRTY = "there are uncommitted changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRecord:
    """A branch: ``sealed`` tokens are the newest first; ``snapshot`` is the metarange of the last compaction.

    ``epoch`` counts the changes of layers, ``generation`` all changes of the record; both only grow. ``uid`` is never
    used twice, also not for a branch of the same name.
    """

    uid: str
    head: str
    staging: str
    sealed: tuple[str, ...] = ()
    snapshot: str | None = None
    epoch: int = 0
    generation: int = 0

    @property
    def tokens(self) -> tuple[str, ...]:
        """Return all layers, the newest first."""
        return (self.staging, *self.sealed)

    def moved(self, **fields: object) -> BranchRecord:
        """Return the next record: layers, snapshot or head are others."""
        return replace(self, epoch=self.epoch + 1, generation=self.generation + 1, **fields)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a build reads: the sealed tokens over the snapshot, or over the head where there is none."""

    uid: str
    head: str
    snapshot: str | None
    sealed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """The next record, and the tokens whose rows nobody needs any more once running reads are over."""

    branch: BranchRecord
    retired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteTicket:
    """What a writer saw before it wrote: its write counts if this still holds afterwards."""

    uid: str
    staging: str
    epoch: int


def basis_of(branch: BranchRecord) -> Basis:
    """Return what a build of this record rests on."""
    return Basis(uid=branch.uid, head=branch.head, snapshot=branch.snapshot, sealed=branch.sealed)


def ticket_of(branch: BranchRecord) -> WriteTicket:
    """Return what a writer has to find again after its write."""
    return WriteTicket(branch.uid, branch.staging, branch.epoch)


def write_holds(ticket: WriteTicket, branch: BranchRecord | None, *, decides: bool) -> bool:
    """Return whether a write may be acknowledged; if not it is done again from the start.

    A value that is just put needs its token to be the staging token still. An operation that *decides* by what it read
    below (delete, conditional put, reset of a key) needs the layers to be what they were: else what it did not find
    may have moved past it.
    """
    if branch is None or branch.uid != ticket.uid or branch.staging != ticket.staging:
        return False
    return not decides or branch.epoch == ticket.epoch


def seal(branch: BranchRecord, token: str, *, is_empty: bool = False) -> BranchRecord:
    """Close the staging token and open another; nothing happens to one that is known to be empty."""
    if is_empty:
        return branch
    return branch.moved(staging=token, sealed=(branch.staging, *branch.sealed))


def refusal(branch: BranchRecord | None, basis: Basis) -> Refusal | None:
    """Return why a build of this basis cannot be published on the branch as it is, or None."""
    if branch is None or branch.uid != basis.uid:
        return Refusal.GONE
    if branch.head != basis.head:
        return Refusal.LOST_HEAD
    if branch.snapshot != basis.snapshot:
        return Refusal.LOST_SNAPSHOT
    if branch.sealed[len(branch.sealed) - len(basis.sealed) :] != basis.sealed:
        return Refusal.LOST_TOKENS
    return None


def publish_snapshot(branch: BranchRecord | None, basis: Basis, snapshot: str, *, equals_head: bool) -> Moved | Refusal:
    """Put a compacted state under the branch in place of the tokens and snapshot it was made of.

    One that equals the head commit in content is no snapshot: the branch is clean, apart from newer tokens.
    """
    refused = refusal(branch, basis)
    if refused or branch is None:
        return refused or Refusal.GONE
    kept = branch.sealed[: len(branch.sealed) - len(basis.sealed)]
    return Moved(branch.moved(sealed=kept, snapshot=None if equals_head else snapshot), basis.sealed)


def publish_commit(branch: BranchRecord | None, basis: Basis, head: str) -> Moved | Refusal:
    """Make a commit of everything in the basis the head; what was staged since stays staged."""
    refused = refusal(branch, basis)
    if refused or branch is None:
        return refused or Refusal.GONE
    kept = branch.sealed[: len(branch.sealed) - len(basis.sealed)]
    return Moved(branch.moved(head=head, sealed=kept, snapshot=None), basis.sealed)


def move_head(branch: BranchRecord | None, basis: Basis, head: str, *, is_clean: bool) -> Moved | Refusal:
    """Set the head to a commit that does not contain what is staged: merge, import, revert, cherry-pick, hard reset.

    ``is_clean`` says that the whole basis, snapshot included, differs in nothing from its head. Its layers are dropped:
    rows without effect on the old head could have one on the new. Newer sealed tokens were not looked at: DIRTY.
    """
    refused = refusal(branch, basis)
    if refused or branch is None:
        return refused or Refusal.GONE
    if not is_clean or branch.sealed != basis.sealed:
        return Refusal.DIRTY
    return Moved(branch.moved(head=head, sealed=(), snapshot=None), basis.sealed)


def reset(branch: BranchRecord, token: str) -> Moved:
    """Drop all uncommitted changes, also those in the snapshot."""
    return Moved(branch.moved(staging=token, sealed=(), snapshot=None), branch.tokens)


def put_before(branch: BranchRecord | None, basis: Basis, token: str) -> Moved | Refusal:
    """Lay a token with rows made from the basis over it, under newer ones: the reset of a prefix."""
    refused = refusal(branch, basis)
    if refused or branch is None:
        return refused or Refusal.GONE
    newer = branch.sealed[: len(branch.sealed) - len(basis.sealed)]
    return Moved(branch.moved(sealed=(*newer, token, *basis.sealed)))
