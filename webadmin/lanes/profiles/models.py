"""Blocks, their datasets, lineage, tombstones and the ledger of accepted ids.

A block row stores the object's metadata as bytes; dataset rows index it. Names and whole lists of label sets are
interned. ``…_ms`` are milliseconds: command time for actions of the schedule, unix time for ids and data. Data times
are closed at both ends, as in the block format.

``db_constraint=False``: the database does not check foreign keys (decision 0022).
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from engine.formats.profile_block.model import COMPACTION_LEVEL_MAX
from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import Tenant
from webadmin.base.database.fields import ByteOrderedField, UlidField
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.querysets import BlockQuerySet, TombstoneQuerySet
from webadmin.lanes.profiles.states import LIVE_STATES, BlockState
from webadmin.schedule.models import Job

DATASET_NAME_MAX = 500
OBJECT_KEY_MAX = 1024


class DatasetName(models.Model):
    """The interned name of a dataset, a service; "" is that of dataset indexes."""

    name = ByteOrderedField(max_length=DATASET_NAME_MAX, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name"], name="dataset_name_unique")]

    def __str__(self) -> str:
        return self.name or "(dataset index)"


class LabelSets(models.Model):
    """A dataset's whole list of label sets, interned: thousands of blocks share few lists."""

    digest = ByteOrderedField(max_length=64)
    label_sets = models.JSONField(help_text="A list of label sets, each a list of [name, value]")

    class Meta:
        verbose_name_plural = "label sets"
        constraints = [models.UniqueConstraint(fields=["digest"], name="label_sets_digest_unique")]

    def __str__(self) -> str:
        return self.digest[:12]


class Block(models.Model):
    """A segment (tenant null, level 0) or a compacted block; the row is kept long after the deletion of the object."""

    ulid = UlidField()
    # Queries for a tenant's blocks read live ones, which have a separate index.
    tenant = models.ForeignKey(
        Tenant, null=True, on_delete=models.PROTECT, related_name="blocks", db_index=False, db_constraint=False
    )
    shard = models.PositiveBigIntegerField()
    level = models.PositiveSmallIntegerField()
    # The 6-hour range of the time in the id: the unit for dropping rows and pruning queries.
    partition_start_ms = models.BigIntegerField()
    created_at_ms = models.BigIntegerField(help_text="The time in the id")
    min_time_ms = models.BigIntegerField()
    max_time_ms = models.BigIntegerField()
    size_bytes = models.PositiveBigIntegerField()
    crc32c = models.PositiveBigIntegerField(null=True)
    object_key = ByteOrderedField(max_length=OBJECT_KEY_MAX)
    metadata = models.BinaryField(help_text="Protobuf BlockMeta")
    dataset_count = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=BlockState)
    parked_reason = models.CharField(max_length=500, blank=True)
    # The job that has the block as a source; kept after replacement.
    owner_job = models.ForeignKey(
        Job, null=True, on_delete=models.PROTECT, related_name="source_blocks", db_index=False, db_constraint=False
    )
    queue = models.ForeignKey(
        LevelQueue, null=True, on_delete=models.PROTECT, related_name="blocks", db_index=False, db_constraint=False
    )
    added_command_index = models.BigIntegerField()
    removed_command_index = models.BigIntegerField(null=True)
    arrived_at_ms = models.BigIntegerField()

    objects = ConfinedManager.from_queryset(BlockQuerySet)("tenant__name")

    class Meta:
        constraints = [
            # The id comes first, so that ranges of times in ids are ranges of the index (``blocks_between``).
            models.UniqueConstraint(fields=["ulid", "shard"], name="block_unique_in_shard"),
            models.CheckConstraint(
                condition=(Q(state=BlockState.QUEUED) & Q(queue__isnull=False))
                | (~Q(state=BlockState.QUEUED) & Q(queue=None)),
                name="block_queued_in_a_queue",
            ),
            models.CheckConstraint(
                condition=(Q(state=BlockState.OWNED) & Q(owner_job__isnull=False))
                | (Q(state__in=[BlockState.QUEUED, BlockState.FINAL]) & Q(owner_job=None))
                | Q(state__in=[BlockState.PARKED, BlockState.REPLACED, BlockState.DROPPED, BlockState.DELETED]),
                name="block_owned_by_a_job",
            ),
            models.CheckConstraint(
                condition=~Q(state=BlockState.PARKED) | ~Q(parked_reason=""), name="block_parked_with_a_reason"
            ),
            models.CheckConstraint(
                condition=(Q(state__in=LIVE_STATES) & Q(removed_command_index=None))
                | (~Q(state__in=LIVE_STATES) & Q(removed_command_index__isnull=False)),
                name="block_removed_by_a_command",
            ),
            models.CheckConstraint(
                condition=(Q(level=0) & Q(tenant=None)) | (Q(level__gt=0) & Q(tenant__isnull=False)),
                name="block_tenant_from_level_one",
            ),
        ]
        # No index covers the state or the command of the removal: so PostgreSQL writes no index when a block is
        # replaced or deleted, as every block is (decision 0033).
        indexes = [
            # The oldest blocks of this queue (poll).
            models.Index(
                fields=["queue", "arrived_at_ms", "ulid"], condition=Q(queue__isnull=False), name="block_in_queue"
            ),
            # The sources of this job (poll).
            models.Index(fields=["owner_job"], condition=Q(owner_job__isnull=False), name="block_of_job"),
            # Blocks of a tenant by time (admin pages). Segments, half of all blocks, have no tenant.
            models.Index(
                fields=["tenant", "max_time_ms"], condition=Q(tenant__isnull=False), name="block_of_tenant_by_time"
            ),
            # Parked blocks, and final blocks (admin lists).
            models.Index(fields=["-id"], condition=~Q(parked_reason=""), name="block_parked"),
            models.Index(fields=["-id"], condition=Q(level__gte=COMPACTION_LEVEL_MAX), name="block_of_last_level"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.ulid


class Dataset(models.Model):
    """One dataset of a block. ``masks_applied`` is the index of the last delete command that its bytes obey.

    This is the table with the most rows: it has no indexes but those below, which cover all queries.
    """

    block = models.ForeignKey(
        Block, on_delete=models.CASCADE, related_name="datasets", db_index=False, db_constraint=False
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False)
    name = models.ForeignKey(
        DatasetName, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    label_sets = models.ForeignKey(
        LabelSets, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    position = models.PositiveIntegerField(help_text="Its place in the block's list of datasets, from 0")
    format = models.PositiveSmallIntegerField()
    min_time_ms = models.BigIntegerField()
    max_time_ms = models.BigIntegerField()
    size_bytes = models.PositiveBigIntegerField()
    masks_applied = models.BigIntegerField(default=0)

    objects = ConfinedManager("tenant__name")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["block", "position"], name="dataset_position_unique")]
        indexes = [
            # Datasets of a tenant and service in a time range (query).
            models.Index(fields=["tenant", "name", "max_time_ms"], name="dataset_by_service_and_time"),
        ]

    def __str__(self) -> str:
        return f"{self.block_id}/{self.position}"


class BlockLineage(models.Model):
    """``result`` was merged from ``source`` (and others) by ``job``."""

    result = models.ForeignKey(
        Block, on_delete=models.CASCADE, related_name="made_from", db_index=False, db_constraint=False
    )
    source = models.ForeignKey(Block, on_delete=models.CASCADE, related_name="went_into", db_constraint=False)
    # The results of a job are read through its sources, which have an index by job.
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="lineage", db_index=False, db_constraint=False)

    objects = ConfinedManager("result__tenant__name")

    class Meta:
        verbose_name_plural = "block lineage"
        constraints = [models.UniqueConstraint(fields=["result", "source"], name="lineage_pair_unique")]

    def __str__(self) -> str:
        return f"{self.source_id} → {self.result_id}"


class RemovalCause(models.TextChoices):
    """Cause of a block's removal from the index."""

    REPLACED = "replaced", "replaced"  # merged by a job
    RETENTION = "retention", "retention"  # older than the retention of its tenants
    REQUEST = "request", "request"  # all of it was deleted on request
    REPAIR = "repair", "repair"  # a record in the bucket names it: the database lost the history with its removal


class Tombstone(models.Model):
    """The object of a removed block: it may be deleted from ``eligible_at_ms`` (command time) on.

    It is dispatched before the request to the store and confirmed after; until then it is retried from ``retry_at_ms``.
    """

    block = models.OneToOneField(Block, on_delete=models.CASCADE, related_name="tombstone", db_constraint=False)
    job = models.ForeignKey(
        Job, null=True, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    cause = models.CharField(max_length=10, choices=RemovalCause, default=RemovalCause.REPLACED)
    command_index = models.BigIntegerField()
    created_at_ms = models.BigIntegerField()
    eligible_at_ms = models.BigIntegerField()
    dispatched_at_ms = models.BigIntegerField(null=True, help_text="When the store was last asked")
    retry_at_ms = models.BigIntegerField(default=0)
    attempts = models.PositiveIntegerField(default=0)
    last_error = models.CharField(max_length=500, blank=True)
    deleted_at_ms = models.BigIntegerField(null=True, help_text="When the deletion of the object was confirmed")

    objects = ConfinedManager.from_queryset(TombstoneQuerySet)("block__tenant__name")

    class Meta:
        indexes = [
            # Objects that may be deleted now (control task).
            models.Index(fields=["eligible_at_ms", "id"], condition=Q(deleted_at_ms=None), name="tombstone_due"),
            # Removals by the commands after this one (lineage).
            models.Index(fields=["command_index"], name="tombstone_by_command"),
            # Dropped blocks (admin list).
            models.Index(fields=["block"], condition=~Q(cause=RemovalCause.REPLACED), name="tombstone_of_dropped"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"tombstone of block {self.block_id}"


class AcceptedId(models.Model):
    """The ledger: registering an accepted id again has no effect, whatever became of its block."""

    shard = models.PositiveBigIntegerField()
    ulid = UlidField()
    content_digest = ByteOrderedField(max_length=64)
    accepted_at_ms = models.BigIntegerField()
    command_index = models.BigIntegerField()

    class Meta:
        # The id comes first, because old ids are deleted.
        constraints = [models.UniqueConstraint(fields=["ulid", "shard"], name="accepted_id_unique")]
        indexes = [models.Index(fields=["command_index"], name="accepted_id_by_command")]

    def __str__(self) -> str:
        return f"{self.shard}/{self.ulid}"


from webadmin.lanes.profiles.catalogue_models import LineageMark, LineageObject, SweptTotal, TenantService  # noqa: E402
from webadmin.lanes.profiles.deletion_models import (  # noqa: E402
    DeleteRequest,
    DeleteState,
    DeletionCertificate,
    LegalHold,
    RetentionRule,
)
from webadmin.lanes.profiles.letter_models import DeadLetter, LetterState  # noqa: E402
from webadmin.lanes.profiles.quarantine_models import Quarantine  # noqa: E402

__all__ = [
    "AcceptedId",
    "Block",
    "BlockLineage",
    "Dataset",
    "DatasetName",
    "DeadLetter",
    "DeleteRequest",
    "DeleteState",
    "DeletionCertificate",
    "LabelSets",
    "LegalHold",
    "LetterState",
    "LineageMark",
    "LineageObject",
    "Quarantine",
    "RemovalCause",
    "RetentionRule",
    "SweptTotal",
    "TenantService",
    "Tombstone",
]
