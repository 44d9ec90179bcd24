"""What the catalog refuses; the message says what to change. Keys and records are refused by
``engine.formats.ranges``.
"""

from __future__ import annotations

from engine.core.errors import LithifyError


class CatalogMissing(LithifyError):
    """Nothing has this name here."""

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
    """A reference leads to nothing."""


class EntryMissing(CatalogMissing):
    """No entry has this key there."""


class NameTakenInCatalog(LithifyError):
    """The name is taken."""

    code = "name_taken"


class RepositoryExists(NameTakenInCatalog):
    """The tenant has a repository of this name, or one in this place."""


class BranchExists(NameTakenInCatalog):
    """The repository has a branch of this name."""


class TagExists(NameTakenInCatalog):
    """The repository has a tag of this name."""


class CatalogRefused(LithifyError):
    """It cannot be asked for like this."""

    code = "catalog_refused"


class NameRefused(CatalogRefused):
    """Nothing can have this name."""


class RefRefused(CatalogRefused):
    """The reference cannot be used for this."""


class BranchRefused(CatalogRefused):
    """The branch does not allow this."""


class CommitRefused(CatalogRefused):
    """There cannot be such a commit."""


class ImportRefused(CatalogRefused):
    """This cannot be imported; nothing was changed."""


class AddressRefused(CatalogRefused):
    """No object of the repository can lie there."""


class TooManyKeys(CatalogRefused):
    """More keys than one call may name."""


class RepositoryReadOnly(LithifyError):
    """The repository takes no changes."""

    code = "repository_read_only"


class BranchProtected(LithifyError):
    """A rule of the repository protects the branch from this."""

    code = "branch_protected"


class PreconditionFailed(LithifyError):
    """What is there is not what the caller said; nothing was written."""

    code = "precondition_failed"


class DirtyBranch(LithifyError):
    """The branch has uncommitted changes that this would not take along."""

    code = "dirty_branch"


class NothingToCommit(LithifyError):
    """There are no changes to commit."""

    code = "no_changes"


class NothingToMerge(NothingToCommit):
    """There are no changes to merge."""


class BranchBusy(LithifyError):
    """Others changed the branch in each of the tries; nothing of this one is to be relied on."""

    code = "branch_busy"
    retryable = True


class FilesCondemned(LithifyError):
    """A file that a build needs is just being deleted: build again."""

    code = "files_condemned"
    retryable = True
