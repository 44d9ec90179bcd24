"""Errors of the catalog; each message says what to change.

Keys and records are checked by ``engine.formats.ranges``.
"""

from __future__ import annotations

from engine.core.errors import LithifyError


class CatalogMissing(LithifyError):
    """The named object does not exist."""

    code = "not_found"


class RepositoryMissing(CatalogMissing):
    """The tenant has no repository of this name."""


class BranchMissing(CatalogMissing):
    """The repository has no branch of this name."""


class TagMissing(CatalogMissing):
    """The repository has no tag of this name."""


class CommitMissing(CatalogMissing):
    """The repository has no such commit."""


class RefMissing(CatalogMissing):
    """The reference does not exist."""


class EntryMissing(CatalogMissing):
    """The reference has no entry with this key."""


class NameTakenInCatalog(LithifyError):
    """The name is already in use."""

    code = "name_taken"


class RepositoryExists(NameTakenInCatalog):
    """The tenant already has a repository with this name or storage namespace."""


class BranchExists(NameTakenInCatalog):
    """The repository already has a branch of this name."""


class TagExists(NameTakenInCatalog):
    """The repository already has a tag of this name."""


class CatalogRefused(LithifyError):
    """The request is invalid."""

    code = "catalog_refused"


class NameRefused(CatalogRefused):
    """The name is invalid."""


class RefRefused(CatalogRefused):
    """The reference cannot be used for this operation."""


class BranchRefused(CatalogRefused):
    """The branch does not allow this operation."""


class CommitRefused(CatalogRefused):
    """The commit is invalid."""


class ImportRefused(CatalogRefused):
    """The import is invalid; nothing was changed."""


class AddressRefused(CatalogRefused):
    """No object of the repository can have this address."""


class TooManyKeys(CatalogRefused):
    """The call names more keys than allowed."""


class RepositoryReadOnly(LithifyError):
    """The repository is read-only."""

    code = "repository_read_only"


class BranchProtected(LithifyError):
    """A protection rule of the repository blocks this operation on the branch."""

    code = "branch_protected"


class PreconditionFailed(LithifyError):
    """The condition of the write does not hold; nothing was written."""

    code = "precondition_failed"


class DirtyBranch(LithifyError):
    """The branch has uncommitted changes that this operation would not include."""

    code = "dirty_branch"


class NothingToCommit(LithifyError):
    """There are no changes to commit."""

    code = "no_changes"


class NothingToMerge(NothingToCommit):
    """There are no changes to merge."""


class BranchBusy(LithifyError):
    """Every try conflicted with a concurrent change of the branch; the write may or may not be visible."""

    code = "branch_busy"
    retryable = True


class FilesCondemned(LithifyError):
    """A file that a build needs is being deleted: build again."""

    code = "files_condemned"
    retryable = True
