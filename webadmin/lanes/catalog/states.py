"""The states of the catalog's rows, as the database keeps them."""

from __future__ import annotations

from django.db import models


class RepositoryState(models.TextChoices):
    """Whether a repository is there. A deleted one can be restored until its rows and files are being deleted."""

    ACTIVE = "active"
    DELETED = "deleted"
    DELETING = "deleting"


class TokenState(models.TextChoices):
    """Where a token is: written to, a layer of its branch, or of no record any more (its rows are swept)."""

    STAGING = "staging"
    SEALED = "sealed"
    RETIRED = "retired"


class Why(models.TextChoices):
    """What a token was sealed or laid for, and what a build is made for."""

    CREATE = "create"
    COMMIT = "commit"
    MERGE = "merge"
    COMPACTION = "compaction"
    RESET = "reset"
    INTERVAL = "interval"
    IMPORT = "import"


class CompactionState(models.TextChoices):
    """What became of a compaction."""

    OPEN = "open", "under way"  # its rows are gathered, or its job waits, runs or is parked
    PUBLISHED = "published", "published"  # its state is the branch's snapshot, or the branch is clean
    LOST = "lost", "lost a race"  # a commit, reset or other compaction came first; nothing of it is seen
    FAILED = "failed", "failed"  # its job failed too often
    ENDED = "ended", "ended"  # there was nothing to do, or somebody ended it
