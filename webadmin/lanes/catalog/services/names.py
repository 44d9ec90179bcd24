"""Rules for the names of repositories, branches and tags."""

from __future__ import annotations

import re

from webadmin.lanes.catalog.column_sizes import NAME_MAX, NAMESPACE_MAX
from webadmin.lanes.catalog.errors import NameRefused

_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9-]{2,62}")
_BRANCH = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_-]{{0,{NAME_MAX - 1}}}")
_TAG = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_./-]{{0,{NAME_MAX - 1}}}")
_COMMIT = re.compile("[0-9a-f]{64}")
NAME_SHOWN_MAX = 80


def check_repository_name(name: str) -> str:
    """Return the name of a repository. Raises NameRefused."""
    if not _REPOSITORY.fullmatch(name):
        raise NameRefused(
            f"{name[:NAME_SHOWN_MAX]!r}: a repository is named by 3 to 63 of a-z 0-9 -, not beginning with -"
        )
    return name


def check_namespace(namespace: str) -> str:
    """Return a storage namespace. Raises NameRefused. The namespace is only a name; it does not set the location."""
    if not 0 < len(namespace) <= NAMESPACE_MAX or not namespace.isprintable():
        raise NameRefused(f"a storage namespace is 1 to {NAMESPACE_MAX} characters without control characters")
    return namespace.rstrip("/")


def check_branch_name(name: str) -> str:
    """Return the name of a branch. Raises NameRefused, also for one that looks like a commit id and would hide it."""
    if not _BRANCH.fullmatch(name) or _COMMIT.fullmatch(name):
        raise NameRefused(
            f"{name[:NAME_SHOWN_MAX]!r}: a branch is named by 1 to {NAME_MAX} of A-Z a-z 0-9 _ -, not like a commit"
        )
    return name


def check_tag_name(name: str) -> str:
    """Return the name of a tag. Raises NameRefused."""
    parts = name.split("/")
    if not _TAG.fullmatch(name) or ".." in name or "" in parts or name.endswith((".", ".lock")):
        raise NameRefused(
            f"{name[:NAME_SHOWN_MAX]!r}: a tag is named by 1 to {NAME_MAX} of A-Z a-z 0-9 _ - . / without .. or //"
        )
    if _COMMIT.fullmatch(name):
        raise NameRefused("a tag cannot be named like a commit")
    return name
