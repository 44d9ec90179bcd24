"""The states of the catalog's rows, as the database keeps them."""

from __future__ import annotations

from django.db import models


class RepositoryState(models.TextChoices):
    """Whether a repository is there, or only its rows and files still are."""

    ACTIVE = "active"
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
