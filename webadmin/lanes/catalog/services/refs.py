"""Resolve references to commits: names of branches and tags, commit ids or their prefixes, with ancestor suffixes.

``main`` is the branch with its staged rows, ``main@`` its head commit; ``~3`` follows first parents, ``^`` is the first
parent, ``^2`` the second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from webadmin.lanes.catalog.errors import RefMissing, RefRefused
from webadmin.lanes.catalog.models import Branch, Commit, Repository, Tag
from webadmin.lanes.catalog.services.commits import find_commit, walk_back
from webadmin.lanes.catalog.services.names import NAME_SHOWN_MAX

_REF = re.compile(r"([^~^@]+)(@?)((?:[~^]\d*)*)")
_STEP = re.compile(r"([~^])(\d*)")
_ID_PREFIX = re.compile("[0-9a-f]{6,64}")
REF_MAX = 400
STEPS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Resolved:
    """A commit, and the branch if the reference was just its name: then staged changes are included."""

    commit: Commit
    branch: Branch | None = None


def resolve(repository: Repository, ref: str) -> Resolved:
    """Resolve a reference. Raises RefRefused, RefMissing."""
    parts = _REF.fullmatch(ref) if len(ref) <= REF_MAX and ref.isprintable() else None
    if parts is None:
        raise RefRefused(f"{ref[:NAME_SHOWN_MAX]!r} is no reference: a branch, tag or commit, then steps like ~2 or ^")
    name, at, steps = parts.groups()
    found = _named(repository, name, ref)
    if at or steps:
        found = Resolved(found.commit)
    for kind, count in _STEP.findall(steps):
        found = Resolved(_step(repository, found.commit, kind, int(count or 1), ref))
    return found


def commit_at(repository: Repository, ref: str) -> Commit:
    """Return the commit of a reference; the head for a branch. Raises RefRefused, RefMissing."""
    return resolve(repository, ref).commit


def _named(repository: Repository, name: str, ref: str) -> Resolved:
    branch = Branch.objects.filter(repository=repository, name=name).first()
    if branch is not None:
        return Resolved(find_commit(repository, branch.head), branch)
    tag = Tag.objects.filter(repository=repository, name=name).first()
    if tag is not None:
        return Resolved(find_commit(repository, tag.commit_id))
    if _ID_PREFIX.fullmatch(name):
        # Ids contain no byte above "f", so a prefix is one range of the index.
        ids = Commit.objects.filter(repository=repository, commit_id__gte=name, commit_id__lt=name + "g")
        found = list(ids.order_by("commit_id")[:2])
        if len(found) == 2:
            raise RefRefused(f"{name!r} is the beginning of several commits")
        if found:
            return Resolved(found[0])
    raise RefMissing(f"{repository.name} has no branch, tag or commit {ref[:NAME_SHOWN_MAX]!r}")


def _step(repository: Repository, commit: Commit, kind: str, count: int, ref: str) -> Commit:
    if kind == "^":
        if count == 0:
            return commit
        if count > len(commit.parents):
            raise RefMissing(f"{ref[:NAME_SHOWN_MAX]!r}: {commit} has {len(commit.parents)} parents")
        return find_commit(repository, commit.parents[count - 1])
    if count > STEPS_MAX:
        raise RefRefused(f"{ref[:NAME_SHOWN_MAX]!r} goes back {count} commits; {STEPS_MAX} are allowed")
    for number, found in enumerate(walk_back(repository, commit, is_first_parent=True)):
        if number == count:
            return found
    raise RefMissing(f"{ref[:NAME_SHOWN_MAX]!r} goes back behind the first commit")
