"""Which files and tokens nobody needs: what builds that lost left behind, and what was replaced.

A file is named by its bytes, so a build may need, and put again, one that lies about unreachable. So nothing is deleted
at once: a file that no root reaches is *condemned* (a row), and deleted when it has been so for a grace time and is
still not reached; its row is marked first, and stays until no build is open that began before the deletion was over.
A build that is published takes its files off the list in the same transaction, and is refused if one of them was marked
and not deleted before it began: then it is done again, and puts the file anew. A build that was taken for dead is
refused, too: nothing was kept in mind for it. What was put since the oldest open build began is not condemned at all,
so that a long one comes to its end.

Objects of entries are condemned and deleted by the same plan. No build puts them, so none is named for them; what makes
them reachable again is withdrawn from the list, or counted, by
``webadmin/lanes/catalog/services/condemned_objects.py``.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A range or metarange in the store; time in unix seconds, as the store tells it."""

    id: str
    written_at: float


@dataclass(frozen=True, slots=True)
class CondemnedFile:
    """A file on the list; times in unix seconds, by the database's clock.

    ``is_marked``: its deletion has begun; ``deleted_at``: the store has said that it is gone.
    """

    id: str
    since: float
    is_marked: bool = False
    deleted_at: float | None = None


@dataclass(frozen=True, slots=True)
class RetiredToken:
    """A token that a record named once; time in unix seconds, by the database's clock."""

    token: str
    retired_at: float


@dataclass(frozen=True, slots=True)
class FileSweep:
    """What a look at the store comes to: ids that join the list, that leave it, and that are marked and deleted."""

    condemned: tuple[str, ...]
    spared: tuple[str, ...]
    deleted: tuple[str, ...]
    forgotten: tuple[str, ...] = ()


def plan_sweep(
    stored: Iterable[StoredFile],
    listed: Iterable[CondemnedFile],
    reachable: Container[str],
    builds_begun_at: Iterable[float] = (),
    *,
    written_before: float,
    condemned_before: float,
    clocks_apart: float = 0.0,
) -> FileSweep:
    """Plan a sweep. Roots (retained commits, snapshots of all branches, pinned readers) are read after ``stored``.

    Files written after ``written_before`` are left alone; those condemned after ``condemned_before`` wait. A marked
    file is deleted again, whatever reaches it: its deletion may have been cut short, and nothing was published with it.
    ``builds_begun_at`` are the beginnings of open builds, by the database's clock, from which that of the store may be
    ``clocks_apart`` seconds apart.
    """
    known = {each.id: each for each in listed}
    oldest = min(builds_begun_at, default=math.inf)
    youngest = min(written_before, oldest - clocks_apart)
    old = (file.id for file in stored if file.written_at < youngest)
    condemned = sorted(id_ for id_ in old if id_ not in reachable and id_ not in known)
    spared = sorted(id_ for id_, each in known.items() if id_ in reachable and not each.is_marked)
    deleted = sorted(
        id_
        for id_, each in known.items()
        if each.deleted_at is None and (each.is_marked or (each.since < condemned_before and id_ not in reachable))
    )
    forgotten = sorted(id_ for id_, each in known.items() if each.deleted_at is not None and each.deleted_at < oldest)
    return FileSweep(tuple(condemned), tuple(spared), tuple(deleted), tuple(forgotten))


def is_publishable(needed: AbstractSet[str], listed: Iterable[CondemnedFile], *, begun_at: float) -> bool:
    """Return whether a build with these files may be published; those of them on the list then leave it."""
    return not any(
        each.id in needed and each.is_marked and (each.deleted_at is None or each.deleted_at >= begun_at)
        for each in listed
    )


def tokens_to_sweep(retired: Iterable[RetiredToken], named: AbstractSet[str], *, before: float) -> list[str]:
    """Return the tokens whose rows may go: retired long enough ago, and named by no record and by no build."""
    return sorted(each.token for each in retired if each.retired_at < before and each.token not in named)
