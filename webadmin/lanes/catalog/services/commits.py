"""Commits: create, find, walk the history, and find the merge base."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from webadmin.base.database.dialect import clock_ms
from webadmin.lanes.catalog.column_sizes import COMMITTER_MAX
from webadmin.lanes.catalog.errors import CommitMissing, CommitRefused
from webadmin.lanes.catalog.models import COMMIT_VERSION, Commit, Repository

MESSAGE_MAX = 100_000
METADATA_MAX = 1_000
METADATA_CHARACTERS_MAX = 100_000
GENERATIONS_AT_ONCE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommit:
    """The content of a commit as given by the caller; ``created_ms`` defaults to the database's time.

    ``allow_empty``: commit without changes.
    """

    committer: str
    message: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    created_ms: int | None = None
    allow_empty: bool = False


def check_commit(new: NewCommit) -> NewCommit:
    """Return the commit's content if it is valid. Raises CommitRefused."""
    if not 0 < len(new.committer) <= COMMITTER_MAX:
        raise CommitRefused(f"a committer is 1 to {COMMITTER_MAX} characters")
    if len(new.message) > MESSAGE_MAX:
        raise CommitRefused(f"a message of {len(new.message)} characters; {MESSAGE_MAX} are allowed")
    if len(new.metadata) > METADATA_MAX or sum(map(len, (*new.metadata, *new.metadata.values()))) > (
        METADATA_CHARACTERS_MAX
    ):
        raise CommitRefused(f"metadata of more than {METADATA_MAX} words or {METADATA_CHARACTERS_MAX} characters")
    for text in (new.committer, new.message, *new.metadata, *new.metadata.values()):
        _check_text(text)
    return new


def make_commit(repository: Repository, new: NewCommit, metarange: str, parents: tuple[Commit, ...]) -> Commit:
    """Return a commit that is not saved yet; its id is the hash of its content."""
    created_ms = clock_ms() if new.created_ms is None else new.created_ms
    parent_ids = [parent.commit_id for parent in parents]
    pairs = [
        COMMIT_VERSION,
        parent_ids,
        new.committer,
        new.message,
        sorted(new.metadata.items()),
        metarange,
        created_ms,
    ]
    commit_id = hashlib.sha256(json.dumps(pairs, ensure_ascii=True, separators=(",", ":")).encode()).hexdigest()
    return Commit(
        repository=repository,
        commit_id=commit_id,
        parents=parent_ids,
        committer=new.committer,
        message=new.message,
        metadata=dict(new.metadata),
        metarange=metarange,
        created_ms=created_ms,
        generation=1 + max((parent.generation for parent in parents), default=0),
    )


def keep_commit(commit: Commit) -> None:
    """Insert a commit; one with this id already has the same content."""
    Commit.objects.bulk_create([commit], ignore_conflicts=True)
    commit.pk = find_commit(commit.repository, commit.commit_id).pk


def find_commit(repository: Repository, commit_id: str) -> Commit:
    """Return a commit by its full id. Raises CommitMissing."""
    found = Commit.objects.filter(repository=repository, commit_id=commit_id).first()
    if found is None:
        raise CommitMissing(f"{repository.name} has no commit {commit_id[:64]!r}")
    return found


def first_parent(repository: Repository, commit: Commit) -> Commit | None:
    """Return the first parent of a commit, None for a root."""
    return find_commit(repository, commit.parents[0]) if commit.parents else None


def walk_back(repository: Repository, start: Commit, *, is_first_parent: bool = False) -> Iterator[Commit]:
    """Yield a commit and its ancestors, each before its parents, the highest generation first."""
    history = _History(repository)
    history.keep(start)
    waiting = [(-start.generation, -start.created_ms, start.commit_id)]
    seen = {start.commit_id}
    while waiting:
        commit = history.commit(heapq.heappop(waiting)[2])
        yield commit
        for parent_id in commit.parents[: 1 if is_first_parent else None]:
            if parent_id not in seen:
                seen.add(parent_id)
                parent = history.commit(parent_id, below=commit.generation)
                heapq.heappush(waiting, (-parent.generation, -parent.created_ms, parent_id))


def merge_base(repository: Repository, left: Commit, right: Commit) -> Commit | None:
    """Return the common ancestor (or one of both) with the highest generation, None if there is none."""
    history = _History(repository)
    sides = {left.commit_id: 1}
    sides[right.commit_id] = sides.get(right.commit_id, 0) | 2
    waiting = []
    for commit in (left, right):
        history.keep(commit)
        waiting.append((-commit.generation, commit.commit_id))
    waiting = sorted(set(waiting))
    while waiting:
        commit = history.commit(heapq.heappop(waiting)[1])
        side = sides[commit.commit_id]
        if side == 3:
            return commit
        for parent_id in commit.parents:
            if parent_id not in sides:
                parent = history.commit(parent_id, below=commit.generation)
                heapq.heappush(waiting, (-parent.generation, parent_id))
            sides[parent_id] = sides.get(parent_id, 0) | side
    return None


class _History:
    """Cache of commits, read some hundred generations at a time."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._commits: dict[str, Commit] = {}
        self._reached: int | None = None

    def keep(self, commit: Commit) -> None:
        self._commits[commit.commit_id] = commit

    def commit(self, commit_id: str, below: int = 0) -> Commit:
        """Return a commit; ``below`` is a generation above its own, used if the commit is not cached."""
        found = self._commits.get(commit_id)
        if found is None and (self._reached is None or below <= self._reached):
            self._reached = max(0, below - GENERATIONS_AT_ONCE)
            rows = Commit.objects.filter(
                repository=self._repository, generation__lt=below, generation__gte=self._reached
            )
            self._commits |= {row.commit_id: row for row in rows.order_by()}
            found = self._commits.get(commit_id)
        if found is None:
            found = self._commits[commit_id] = find_commit(self._repository, commit_id)
        return found


def _check_text(text: str) -> None:
    if "\0" in text:
        raise CommitRefused("a commit's texts have no NUL")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CommitRefused(f"half a character (a lone surrogate) at position {error.start} of a text") from error
