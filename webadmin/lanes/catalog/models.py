"""Repositories, branches with their staged entries, commits, tags, open builds, and condemned files.

Keys of entries are bytes (``engine.formats.ranges.model.key_of``), times named ``…_ms`` unix milliseconds by the
database's clock, metaranges and files the 64 hex digits of their names. ``engine.lanes.catalog.plan.branch`` defines
the record of a branch and all its changes; only ``services/records.py`` writes it.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.database.fields import ByteOrderedField
from webadmin.lanes.catalog.column_sizes import (
    ADDRESS_MAX,
    COMMITTER_MAX,
    ID_LENGTH,
    NAME_MAX,
    NAMESPACE_MAX,
    REPOSITORY_NAME_MAX,
)
from webadmin.lanes.catalog.states import RepositoryState, TokenState, Why

"""Maximum length of a key in an object store."""
COMMIT_VERSION = 1


class Repository(models.Model):
    """A catalog of one tenant. ``storage_namespace`` is the clients' name for the location of its objects.

    ``protection`` lists rules: ``{"pattern": glob of branch names, "blocks": ["staging_write", "commit"]}``.
    ``deleted_ms`` is when it was deleted; names are unique among repositories that are not deleted. ``links`` counts
    the operations that may make objects reachable again (``services/condemned_objects.py``).
    """

    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX)
    name = ByteOrderedField(max_length=REPOSITORY_NAME_MAX)
    storage_namespace = ByteOrderedField(max_length=NAMESPACE_MAX)
    default_branch = ByteOrderedField(max_length=NAME_MAX)
    is_read_only = models.BooleanField(default=False)
    protection = models.JSONField(default=list)
    state = models.CharField(max_length=10, choices=RepositoryState, default=RepositoryState.ACTIVE)
    created_ms = models.BigIntegerField()
    deleted_ms = models.BigIntegerField(null=True)
    links = models.PositiveBigIntegerField(default=0)

    objects = ConfinedManager("tenant")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"],
                condition=Q(state=RepositoryState.ACTIVE),
                name="catalog_repository_name_unique",
            ),
            models.UniqueConstraint(
                fields=["tenant", "storage_namespace"],
                condition=Q(state=RepositoryState.ACTIVE),
                name="catalog_repository_namespace_unique",
            ),
        ]
        verbose_name_plural = "repositories"
        ordering = ["tenant", "name"]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}"


class Branch(models.Model):
    """A branch's record except its sealed tokens. ``head`` is a commit id, ``staging`` the id of a token.

    ``snapshot`` is the metarange of the last compaction, null if there is none. ``epoch`` counts the changes of layers,
    ``generation`` all changes of the record: writers compare the generation.
    """

    repository = models.ForeignKey(Repository, on_delete=models.CASCADE, related_name="branches", db_index=False)
    name = ByteOrderedField(max_length=NAME_MAX)
    head = ByteOrderedField(max_length=ID_LENGTH)
    staging = models.BigIntegerField()
    snapshot = ByteOrderedField(max_length=ID_LENGTH, null=True)  # type: ignore[misc]  # the only one with null
    epoch = models.PositiveBigIntegerField(default=0)
    generation = models.PositiveBigIntegerField(default=0)
    is_hidden = models.BooleanField(default=False)
    created_ms = models.BigIntegerField()

    objects = ConfinedManager("repository__tenant")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["repository", "name"], name="catalog_branch_name_unique")]
        verbose_name_plural = "branches"
        ordering = ["repository", "name"]

    def __str__(self) -> str:
        return self.name


class BranchToken(models.Model):
    """A layer of staged rows. Among the tokens of a branch the staging token has the highest ``position``.

    There is no foreign key to the branch: a token remains after its branch is deleted until its rows are swept.
    ``row_count`` and ``tombstone_count`` are set for sealed tokens once they are counted.
    """

    repository_id = models.BigIntegerField()
    branch_id = models.BigIntegerField()
    state = models.CharField(max_length=8, choices=TokenState, default=TokenState.STAGING)
    position = models.BigIntegerField()
    reason = models.CharField(max_length=10, choices=Why, default=Why.CREATE)
    created_ms = models.BigIntegerField()
    sealed_ms = models.BigIntegerField(null=True)
    retired_ms = models.BigIntegerField(null=True)
    row_count = models.PositiveBigIntegerField(null=True)
    tombstone_count = models.PositiveBigIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["branch_id"], condition=Q(state=TokenState.STAGING), name="catalog_token_one_staging"
            ),
        ]
        indexes = [
            # The layers of a branch.
            models.Index(
                fields=["branch_id", "position"],
                condition=~Q(state=TokenState.RETIRED),
                name="catalog_token_live",
            ),
            # The tokens whose rows can be deleted.
            models.Index(fields=["retired_ms"], condition=Q(state=TokenState.RETIRED), name="catalog_token_retired"),
        ]
        ordering = ["branch_id", "-position"]

    def __str__(self) -> str:
        return f"{self.state} token {self.id}"


class StagedEntry(models.Model):
    """A staged change of a key: a value, or (empty ``identity``) a tombstone. ``generation`` counts its writes.

    Ordered by key, so that one scan reads the rows of all layers, by key or by prefix.
    """

    pk = models.CompositePrimaryKey("branch_id", "key", "token_id")
    branch_id = models.BigIntegerField()
    key = models.BinaryField()
    token_id = models.BigIntegerField()
    identity = models.BinaryField()
    payload = models.BinaryField()
    generation = models.PositiveBigIntegerField(default=1)
    written_ms = models.BigIntegerField()

    class Meta:
        # Whether a token has rows, and deleting the rows of a retired token.
        indexes = [models.Index(fields=["token_id"], name="catalog_staged_of_token")]
        verbose_name_plural = "staged entries"


class StagedInterval(models.Model):
    """Interval tombstone: deletes all keys in ``[start, end)`` (null: without end) in this token and in older ones.

    The token was sealed in the same transaction: every row in it is older than the interval.
    """

    branch_id = models.BigIntegerField()
    token_id = models.BigIntegerField()
    start = models.BinaryField()
    end = models.BinaryField(null=True)

    class Meta:
        indexes = [models.Index(fields=["branch_id", "token_id"], name="catalog_interval_of_branch")]


class Commit(models.Model):
    """An immutable state with its history; ``parents`` are commit ids, the first is the previous head of the branch.

    ``generation`` is one more than the greatest generation of its parents. The id is the hash of the content.
    """

    repository = models.ForeignKey(Repository, on_delete=models.CASCADE, related_name="commits", db_index=False)
    commit_id = ByteOrderedField(max_length=ID_LENGTH)
    parents = models.JSONField(default=list)
    committer = models.CharField(max_length=COMMITTER_MAX)
    message = models.TextField(blank=True)
    metadata = models.JSONField(default=dict)
    metarange = ByteOrderedField(max_length=ID_LENGTH)
    created_ms = models.BigIntegerField()
    generation = models.PositiveBigIntegerField()
    version = models.PositiveSmallIntegerField(default=COMMIT_VERSION)

    objects = ConfinedManager("repository__tenant")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["repository", "commit_id"], name="catalog_commit_id_unique")]
        # History is read by ranges of generations.
        indexes = [models.Index(fields=["repository", "generation"], name="catalog_commit_generation")]
        ordering = ["repository", "-generation"]

    def __str__(self) -> str:
        return self.commit_id[:16]


class Tag(models.Model):
    """A tag: a name for a commit."""

    repository = models.ForeignKey(Repository, on_delete=models.CASCADE, related_name="tags", db_index=False)
    name = ByteOrderedField(max_length=NAME_MAX)
    commit_id = ByteOrderedField(max_length=ID_LENGTH)
    created_ms = models.BigIntegerField()

    objects = ConfinedManager("repository__tenant")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["repository", "name"], name="catalog_tag_name_unique")]
        ordering = ["repository", "name"]

    def __str__(self) -> str:
        return self.name


class Build(models.Model):
    """An open build: records since when it may have written files that nothing references yet; deleted when it ends.

    ``base_version`` is its base version. A build whose ``heartbeat_ms`` has expired has died with its process; the
    build of a compaction is open as long as the compaction.
    """

    repository_id = models.BigIntegerField()
    branch_id = models.BigIntegerField(null=True)
    kind = models.CharField(max_length=10, choices=Why)
    base_version = models.JSONField(default=dict)
    begun_ms = models.BigIntegerField()
    heartbeat_ms = models.BigIntegerField()

    class Meta:
        indexes = [models.Index(fields=["repository_id"], name="catalog_build_of_repository")]
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class CondemnedFile(models.Model):
    """A range or metarange that was unreachable at the last listing of the store.

    The rules are in ``engine.lanes.catalog.plan.orphans``.
    """

    repository_id = models.BigIntegerField()
    file_id = ByteOrderedField(max_length=ID_LENGTH)
    is_metarange = models.BooleanField(default=False)
    since_ms = models.BigIntegerField()
    is_marked = models.BooleanField(default=False)
    deleted_ms = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["repository_id", "file_id"], name="catalog_condemned_file_unique")
        ]

    def __str__(self) -> str:
        return self.file_id[:16]


class CondemnedObject(models.Model):
    """An uploaded object that no entry named at the last listing of the store. ``is_marked``: its deletion has begun.

    ``address`` is relative to the repository's folder, as in entries. The row is deleted with the object.
    """

    repository_id = models.BigIntegerField()
    address = ByteOrderedField(max_length=ADDRESS_MAX)
    since_ms = models.BigIntegerField()
    is_marked = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["repository_id", "address"], name="catalog_condemned_object_unique")
        ]

    def __str__(self) -> str:
        return self.address


class ImportedPlace(models.Model):
    """An object, or (``is_prefix``) all objects whose key has this prefix, that a repository imported without a copy.

    ``folder_url`` is the store of ``key``. Commits name these objects until the repository's rows are deleted, so no
    table and no bucket may be there. The row is written before the objects are listed.
    """

    repository = models.ForeignKey(Repository, on_delete=models.CASCADE, related_name="imported_places")
    folder_url = models.TextField()
    key = models.TextField(blank=True)
    is_prefix = models.BooleanField()

    objects = ConfinedManager("repository__tenant")

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.key


class BranchLoad(models.Model):
    """Approximate counts of writes to a branch by all processes since its last compaction or commit."""

    branch_id = models.BigIntegerField(primary_key=True)
    rows = models.BigIntegerField(default=0)
    tombstones = models.BigIntegerField(default=0)
    wasteful_lists = models.BigIntegerField(default=0)
    changed_ms = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"load of {self.branch_id}"


# Django finds models through this module.
from webadmin.lanes.catalog import lane_models  # noqa: E402, F401
