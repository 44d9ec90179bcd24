"""States of the catalog's rows as stored in the database."""

from __future__ import annotations

from django.db import models


class RepositoryState(models.TextChoices):
    """State of a repository. A deleted one can be restored until its rows and files are being deleted."""

    ACTIVE = "active"
    DELETED = "deleted"
    DELETING = "deleting"


class TokenState(models.TextChoices):
    """State of a token: being written, a layer of its branch, or retired (its rows are swept)."""

    STAGING = "staging"
    SEALED = "sealed"
    RETIRED = "retired"


class Why(models.TextChoices):
    """Cause of sealing or adding a token, and of a build."""

    CREATE = "create"
    COMMIT = "commit"
    MERGE = "merge"
    COMPACTION = "compaction"
    RESET = "reset"
    INTERVAL = "interval"
    IMPORT = "import"


class CompactionState(models.TextChoices):
    """State and outcome of a compaction."""

    OPEN = "open", "under way"  # its rows are collected, or its job is waiting, running or parked
    PUBLISHED = "published", "published"  # its state is the branch's snapshot, or the branch is clean
    LOST = "lost", "lost a race"  # a commit, reset or other compaction came first; it has no effect
    FAILED = "failed", "failed"  # its job failed too often
    ENDED = "ended", "ended"  # there was nothing to do, or it was cancelled
