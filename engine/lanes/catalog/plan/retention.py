"""Decide which commits keep their objects.

First parents are followed from the head of every branch, up to and including the first commit older than the branch's
retention. Second parents are not followed: a merge commit contains what was merged. A commit that is neither a head nor
a first parent is *dangling* and is kept for the default retention. Tags keep their commits without limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

KEEP_ALL = 0
"""Retention in days that keeps the objects of all commits."""


@dataclass(frozen=True, slots=True)
class KeptCommit:
    """The fields of a commit that retention uses; time in Unix milliseconds."""

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

    ``heads`` maps the id of a branch's head to the time before which commits are too old; of two branches with the same
    head the earlier time counts.
    """
    starts = dict(heads)
    parents = {commit.first_parent for commit in commits.values()}
    for commit in commits.values():
        if commit.id not in parents and commit.id not in starts:
            starts[commit.id] = dangling_before_ms
    active = set(tagged)
    reached: dict[str, int] = {}
    # Longest retention first: a walk stops at commits that a walk with longer retention has reached.
    for start, before_ms in sorted(starts.items(), key=lambda each: (each[1], each[0])):
        is_dangling = start not in heads
        current = commits.get(start)
        while current is not None and not (current.id in reached and reached[current.id] <= before_ms):
            is_old = current.created_ms < before_ms
            if is_old and is_dangling and current.id == start:
                break  # An expired dangling commit is not kept as the boundary commit of a branch is.
            active.add(current.id)
            reached[current.id] = before_ms
            if is_old:
                break
            current = commits.get(current.first_parent or "")
    return active
