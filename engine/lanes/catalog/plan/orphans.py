"""Plan which unreferenced files and tokens are deleted: leftovers of refused builds, and what was replaced.

A file is named by its bytes, so a build may need, and write again, a file that is unreachable now. Deletion has two
phases: a file that no root reaches is *condemned* (a row); it is deleted when it has been condemned for a grace period
and is still unreachable. Its row is marked first and stays until every open build began after the deletion finished. A
published build removes its files from the list in the same transaction. It is refused if one of them was marked and not
deleted before the build began; it is then repeated and writes the file again. A build that was considered dead is
refused too, since no files were retained for it. Files written since the oldest open build began are not condemned, so
that long builds can finish.

Objects of entries are condemned and deleted by the same plan. Builds do not write them;
``webadmin/lanes/catalog/services/garbage/condemned_objects.py`` withdraws or counts them when they become
reachable again.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A range or metarange in the store; time in Unix seconds, from the store's clock."""

    id: str
    written_at: float


@dataclass(frozen=True, slots=True)
class CondemnedFile:
    """A condemned file; times in Unix seconds, from the database's clock.

    ``is_marked``: its deletion has begun. ``deleted_at``: when the store confirmed the deletion.
    """

    id: str
    since: float
    is_marked: bool = False
    deleted_at: float | None = None


@dataclass(frozen=True, slots=True)
class RetiredToken:
    """A token that a record named before; time in Unix seconds, from the database's clock."""

    token: str
    retired_at: float


@dataclass(frozen=True, slots=True)
class FileSweep:
    """The result of a sweep: ids to condemn, to spare, to mark and delete, and to remove from the list."""

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
    clock_skew_s: float = 0.0,
) -> FileSweep:
    """Plan a sweep. Roots (retained commits, snapshots of all branches, pinned readers) must be read after ``stored``.

    Files written after ``written_before`` are skipped; files condemned after ``condemned_before`` wait. A marked file
    is deleted again even if it is reachable: its deletion may have been interrupted, and nothing was published with it.
    ``builds_begun_at`` are the start times of open builds by the database's clock, which differs from the store's by at
    most ``clock_skew_s`` seconds.
    """
    known = {each.id: each for each in listed}
    oldest = min(builds_begun_at, default=math.inf)
    youngest = min(written_before, oldest - clock_skew_s)
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
    """Return whether a build with these files may be published; its condemned files are then removed from the list."""
    return not any(
        each.id in needed and each.is_marked and (each.deleted_at is None or each.deleted_at >= begun_at)
        for each in listed
    )


def tokens_to_sweep(retired: Iterable[RetiredToken], named: AbstractSet[str], *, before: float) -> list[str]:
    """Return the tokens whose rows can be deleted: retired before ``before``, and named by no record and no build."""
    return sorted(each.token for each in retired if each.retired_at < before and each.token not in named)
