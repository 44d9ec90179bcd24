"""The record of a branch and all of its transitions.

Every function takes a record and returns the next version of it, or a refusal. The caller stores it with one
conditional update on the generation it read, in which retired tokens are recorded too. Leases and fencing tokens belong
to the schedule and are not part of the record.

A *base version* is what a build reads: head, snapshot and sealed tokens of one record. All of these are immutable, so a
build is a pure function of its base version. It may be published while the branch still has the same base version, also
if newer tokens were sealed meanwhile: these are kept.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace


class Refusal(enum.Enum):
    """Why a build cannot be published; the record is unchanged."""

    GONE = "the branch was deleted or recreated"
    LOST_HEAD = "the head moved"
    LOST_SNAPSHOT = "another compaction was published"
    LOST_TOKENS = "sealed tokens were retired"
    DIRTY = "there are uncommitted changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRecord:
    """A branch. ``sealed`` tokens are ordered newest first; ``snapshot`` is the metarange of the last compaction.

    ``epoch`` counts changes of the layers, ``generation`` all changes of the record; both only increase. ``uid`` is
    never reused, also not for a branch of the same name.
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
        """Return all tokens, newest first."""
        return (self.staging, *self.sealed)

    def next_version(self, **fields: object) -> BranchRecord:
        """Return the next version of the record, with changed layers, snapshot or head."""
        return replace(self, epoch=self.epoch + 1, generation=self.generation + 1, **fields)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseVersion:
    """The base version of a build: the sealed tokens over the snapshot, or over the head if there is none."""

    uid: str
    head: str
    snapshot: str | None
    sealed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BranchUpdate:
    """The next version of a record, and the tokens whose rows can be deleted once running reads have finished."""

    branch: BranchRecord
    retired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteTicket:
    """What a writer read before its write; the write is valid if it still holds afterwards."""

    uid: str
    staging: str
    epoch: int


def base_version_of(branch: BranchRecord) -> BaseVersion:
    """Return the base version of a record."""
    return BaseVersion(uid=branch.uid, head=branch.head, snapshot=branch.snapshot, sealed=branch.sealed)


def write_ticket(branch: BranchRecord) -> WriteTicket:
    """Return the ticket that ``is_write_valid`` checks after a write."""
    return WriteTicket(branch.uid, branch.staging, branch.epoch)


def is_write_valid(ticket: WriteTicket, branch: BranchRecord | None, *, decides: bool) -> bool:
    """Return whether a write may be acknowledged; otherwise it must be retried from the start.

    A plain put needs its token to be the current staging token. An operation that *decides* by what it read in lower
    layers (delete, conditional put, reset of a key) needs unchanged layers: otherwise a row that it did not find may
    have moved past it.
    """
    if branch is None or branch.uid != ticket.uid or branch.staging != ticket.staging:
        return False
    return not decides or branch.epoch == ticket.epoch


def seal(branch: BranchRecord, token: str, *, is_empty: bool = False) -> BranchRecord:
    """Seal the staging token and start ``token``; a token known to be empty is kept."""
    if is_empty:
        return branch
    return branch.next_version(staging=token, sealed=(branch.staging, *branch.sealed))


def refusal(branch: BranchRecord | None, base_version: BaseVersion) -> Refusal | None:
    """Return why a build of this base version cannot be published on the branch, None if it can."""
    if branch is None or branch.uid != base_version.uid:
        return Refusal.GONE
    if branch.head != base_version.head:
        return Refusal.LOST_HEAD
    if branch.snapshot != base_version.snapshot:
        return Refusal.LOST_SNAPSHOT
    if branch.sealed[len(branch.sealed) - len(base_version.sealed) :] != base_version.sealed:
        return Refusal.LOST_TOKENS
    return None


def publish_snapshot(
    branch: BranchRecord | None, base_version: BaseVersion, snapshot: str, *, equals_head: bool
) -> BranchUpdate | Refusal:
    """Replace the tokens and snapshot of the base version by a compacted state.

    A state that equals the head commit is not kept as a snapshot: the branch is clean except for newer tokens.
    """
    refused = refusal(branch, base_version)
    if refused or branch is None:
        return refused or Refusal.GONE
    kept = branch.sealed[: len(branch.sealed) - len(base_version.sealed)]
    return BranchUpdate(
        branch.next_version(sealed=kept, snapshot=None if equals_head else snapshot), base_version.sealed
    )


def publish_commit(branch: BranchRecord | None, base_version: BaseVersion, head: str) -> BranchUpdate | Refusal:
    """Set the head to a commit of the whole base version; changes staged since stay staged."""
    refused = refusal(branch, base_version)
    if refused or branch is None:
        return refused or Refusal.GONE
    kept = branch.sealed[: len(branch.sealed) - len(base_version.sealed)]
    return BranchUpdate(branch.next_version(head=head, sealed=kept, snapshot=None), base_version.sealed)


def move_head(
    branch: BranchRecord | None, base_version: BaseVersion, head: str, *, is_clean: bool
) -> BranchUpdate | Refusal:
    """Set the head to a commit without the staged changes: merge, import, revert, cherry-pick, hard reset.

    ``is_clean`` states that the whole base version, snapshot included, equals its head. Its layers are dropped, because
    rows without effect on the old head could affect the new one. Returns DIRTY if it is not clean or newer tokens were
    sealed.
    """
    refused = refusal(branch, base_version)
    if refused or branch is None:
        return refused or Refusal.GONE
    if not is_clean or branch.sealed != base_version.sealed:
        return Refusal.DIRTY
    return BranchUpdate(branch.next_version(head=head, sealed=(), snapshot=None), base_version.sealed)


def reset(branch: BranchRecord, token: str) -> BranchUpdate:
    """Drop all uncommitted changes, including those in the snapshot."""
    return BranchUpdate(branch.next_version(staging=token, sealed=(), snapshot=None), branch.tokens)


def insert_token(branch: BranchRecord | None, base_version: BaseVersion, token: str) -> BranchUpdate | Refusal:
    """Insert a token above the base version and below newer tokens: the reset of a prefix."""
    refused = refusal(branch, base_version)
    if refused or branch is None:
        return refused or Refusal.GONE
    newer = branch.sealed[: len(branch.sealed) - len(base_version.sealed)]
    return BranchUpdate(branch.next_version(sealed=(*newer, token, *base_version.sealed)))
