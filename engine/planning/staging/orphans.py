"""Which files and tokens nobody needs: what builds that lost left behind, and what was replaced."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A range or metarange in the store; time in unix seconds, as the store tells it."""

    id: str
    written_at: float


@dataclass(frozen=True, slots=True)
class RetiredToken:
    """A token that a record named once; time in unix seconds, by the database's clock."""

    token: str
    retired_at: float


def files_to_delete(
    stored: Iterable[StoredFile], reachable: AbstractSet[str], intended: AbstractSet[str], *, before: float
) -> list[str]:
    """Return files that are neither reachable from a root nor named by a build that may still be published.

    Roots are retained commits, snapshots of all branches, pinned readers. They must be read *after* the list of stored
    files and after the intents: what is published meanwhile is then seen in one of them. Files written after
    ``before`` stay: a build puts every file again that it rests on.
    """
    return sorted(
        file.id for file in stored if file.written_at < before and file.id not in reachable and file.id not in intended
    )


def tokens_to_sweep(retired: Iterable[RetiredToken], named: AbstractSet[str], *, before: float) -> list[str]:
    """Return the tokens whose rows may go: retired long enough ago, and named by no record and by no build."""
    return sorted(each.token for each in retired if each.retired_at < before and each.token not in named)
