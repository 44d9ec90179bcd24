"""Which commits keep their objects: pure.

From the head of every branch first parents are followed, up to and including the first commit that is older than the
branch keeps them. Second parents are not followed: what a merge brought is in the merge. A commit that is nobody's
first parent and no head is *dangling*, and is kept as long as the default says. Tags keep their commits for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

KEEP_ALL = 0
"""Days: all commits keep their objects."""


@dataclass(frozen=True, slots=True)
class KeptCommit:
    """A commit as retention sees it; time in unix milliseconds."""

    id: str
    first_parent: str | None
    created_ms: int


def active_commits(
    commits: Mapping[str, KeptCommit],
    heads: Mapping[str, int],
    tagged: Iterable[str] = (),
    *,
    dangling_before_ms: int,
) -> set[str]:
    """Return the ids of commits that keep their objects.

    ``heads`` maps the id of a branch's head to the time before which a commit is too old there; of two branches with
    the same head the earlier time counts.
    """
    starts = dict(heads)
    parents = {commit.first_parent for commit in commits.values()}
    for commit in commits.values():
        if commit.id not in parents and commit.id not in starts:
            starts[commit.id] = dangling_before_ms
    active = set(tagged)
    reached: dict[str, int] = {}
    # The longest memory first: a walk ends where one with a longer memory has been.
    for start, before_ms in sorted(starts.items(), key=lambda each: (each[1], each[0])):
        is_dangling = start not in heads
        current = commits.get(start)
        while current is not None and not (current.id in reached and reached[current.id] <= before_ms):
            is_old = current.created_ms < before_ms
            if is_old and is_dangling and current.id == start:
                break  # nobody's state any more: not even the first that is too old is kept
            active.add(current.id)
            reached[current.id] = before_ms
            if is_old:
                break
            current = commits.get(current.first_parent or "")
    return active
