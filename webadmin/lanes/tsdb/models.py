"""Models of buckets, folders, tenants, blocks, groups that merge blocks, and the outbox.

Columns named ``…_ms`` are milliseconds: the blocks' own times (ends exclusive) and wall time; command time where the
comment says so. What other writers put into a bucket is stored unchanged; ``engine.lanes.tsdb.buckets`` interprets it.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.database.fields import ByteOrderedField, UlidField
from webadmin.lanes.tsdb.states import BlockState, GroupState, StepKind
from webadmin.schedule.models import Job

NAME_MAX = 60
URL_MAX = 1000
FOLDER_MAX = 200
KEY_MAX = 300
REASON_MAX = 500
LAYOUTS = (("cortex", "Cortex"), ("thanos", "Thanos"))
WINNERS = (("default", "ours"), ("prometheus", "that of Prometheus"))
HOUR_S = 3600


class Bucket(models.Model):
    """A bucket that this installation compacts. ``ranges`` are interval lengths, each a multiple of the previous one.

    ``readers_know_partitions``: all readers and compactors of the bucket distinguish partitions of a group from
    duplicates (Cortex with partitioning compaction). Groups are split into partitions only then.
    """

    name = ByteOrderedField(max_length=NAME_MAX)
    url = ByteOrderedField(max_length=URL_MAX)
    layout = models.CharField(max_length=10, choices=LAYOUTS)
    ranges = models.CharField(max_length=100, default="2h,12h,24h")
    consistency_delay_seconds = models.PositiveIntegerField(default=25 * 60)
    winner = models.CharField(max_length=10, choices=WINNERS, default="default")
    partition_series = models.PositiveBigIntegerField(default=0)
    partition_index_bytes = models.PositiveBigIntegerField(default=64 << 30)
    replication = models.PositiveSmallIntegerField(default=1)
    readers_know_partitions = models.BooleanField(default=False)
    deletion_delay_seconds = models.PositiveIntegerField(default=12 * HOUR_S)
    partial_age_seconds = models.PositiveIntegerField(default=48 * HOUR_S)
    replica_labels = models.CharField(max_length=500, blank=True)
    tenant_shard_size = models.PositiveIntegerField(default=0)
    is_paused = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    scanned_at_ms = models.BigIntegerField(null=True)
    scan_requests = models.PositiveIntegerField(default=0)
    scan_error = models.CharField(max_length=REASON_MAX, blank=True)

    objects = ConfinedManager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name"], name="tsdb_bucket_name_unique"),
            models.UniqueConstraint(fields=["url"], name="tsdb_bucket_url_unique"),
        ]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Folder(models.Model):
    """A folder of blocks: "", or a name that ends in a slash.

    ``examined`` is what the last scan recorded beside blocks (unfinished uploads, bad blocks, marks), so that the next
    scan reads only new objects. It takes some hundred bytes per mark: defer it in joins that do not need it.
    """

    bucket = models.ForeignKey(Bucket, on_delete=models.CASCADE, related_name="folders", db_index=False)
    name = ByteOrderedField(max_length=FOLDER_MAX, blank=True)
    examined = models.JSONField(default=dict)
    scanned_at_ms = models.BigIntegerField(null=True)
    # When all objects were last listed, not only the names of blocks and marks.
    listed_at_ms = models.BigIntegerField(null=True)
    # Numbers of bad blocks and unfinished uploads in ``examined``.
    bad = models.PositiveIntegerField(default=0)
    partial = models.PositiveIntegerField(default=0)
    # Error of the last failed scan, number of consecutive failures, and time of the next attempt (back-off).
    trouble = models.CharField(max_length=REASON_MAX, blank=True)
    failures = models.PositiveIntegerField(default=0)
    again_at_ms = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["bucket", "name"], name="tsdb_folder_unique")]
        ordering = ["bucket", "name"]

    def __str__(self) -> str:
        return self.name or "/"


class BucketTenant(models.Model):
    """A tenant of a bucket and its compaction progress. ``refusal`` is why nothing is planned, "" if planning works.

    ``slots`` are the intervals that hold blocks, with the pending work in each, as of the last plan. ``waiting`` is the
    number of blocks to merge, and ``compactions`` the number of merges until nothing is left to merge. ``plan_at_ms``
    is when to plan next. ``too_large`` is the number of groups not planned because they would have to be split into
    partitions, ``parts`` the number of published blocks that are partitions of a group; both only where the bucket does
    not allow partitions.
    """

    bucket = models.ForeignKey(Bucket, on_delete=models.CASCADE, related_name="tenants", db_index=False)
    folder = models.ForeignKey(Folder, on_delete=models.CASCADE, related_name="tenants")
    name = ByteOrderedField(max_length=TENANT_NAME_MAX)
    refusal = models.CharField(max_length=REASON_MAX, blank=True)
    refused_until_ms = models.BigIntegerField(null=True)
    is_deleted = models.BooleanField(default=False)
    planned_at_ms = models.BigIntegerField(null=True)
    plan_at_ms = models.BigIntegerField(null=True, default=0)
    # Number of consecutive failed plans; ``refusal`` has the error.
    failures = models.PositiveIntegerField(default=0)
    waiting = models.PositiveIntegerField(default=0)
    compactions = models.PositiveIntegerField(default=0)
    slots = models.JSONField(default=list)
    too_large = models.PositiveIntegerField(default=0)
    parts = models.PositiveIntegerField(default=0)
    index_wanted = models.PositiveBigIntegerField(default=0)
    index_written = models.PositiveBigIntegerField(default=0)
    index_written_at_ms = models.BigIntegerField(null=True)
    # End of the current writer's lease of the bucket index.
    index_writer_until_ms = models.BigIntegerField(null=True)

    objects = ConfinedManager("name")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["bucket", "name"], name="tsdb_tenant_unique")]
        indexes = [
            # Tenants whose plan is due.
            models.Index(fields=["plan_at_ms", "id"], condition=Q(plan_at_ms__isnull=False), name="tsdb_tenant_due"),
        ]
        ordering = ["bucket", "name"]

    def __str__(self) -> str:
        return self.name


class Group(models.Model):
    """Blocks of one interval that are merged together into ``partitions`` partitions; done when all of them are."""

    tenant = models.ForeignKey(BucketTenant, on_delete=models.CASCADE, related_name="groups", db_index=False)
    group_key = ByteOrderedField(max_length=KEY_MAX, blank=True)
    range_ms = models.BigIntegerField()
    start_ms = models.BigIntegerField()
    partitions = models.PositiveIntegerField()
    level = models.PositiveIntegerField()
    is_vertical = models.BooleanField()
    cause = models.CharField(max_length=REASON_MAX)
    state = models.CharField(max_length=10, choices=GroupState, default=GroupState.OPEN)
    block_count = models.PositiveIntegerField()
    byte_count = models.PositiveBigIntegerField()
    series_count = models.PositiveBigIntegerField(default=0)
    created_at_ms = models.BigIntegerField()
    command_index = models.BigIntegerField()
    finished_at_ms = models.BigIntegerField(null=True)
    ended_because = models.CharField(max_length=REASON_MAX, blank=True)
    # Result of reading the sources of a failed job individually.
    finding = models.CharField(max_length=REASON_MAX, blank=True)

    objects = ConfinedManager("tenant__name")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "group_key", "range_ms", "start_ms"],
                condition=Q(state=GroupState.OPEN),
                name="tsdb_group_unique_while_open",
            ),
            models.CheckConstraint(
                condition=Q(state=GroupState.OPEN, finished_at_ms=None)
                | (~Q(state=GroupState.OPEN) & Q(finished_at_ms__isnull=False)),
                name="tsdb_group_ends_some_time",
            ),
        ]
        indexes = [
            # The open and finished groups of a tenant, newest first.
            models.Index(fields=["tenant", "state", "-id"], name="tsdb_group_of_tenant"),
        ]
        ordering = ["-id"]

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.range_ms

    def __str__(self) -> str:
        return f"group {self.id}"


class Block(models.Model):
    """A block of a bucket as described by its ``meta.json``.

    ``meta`` is the content of that file, ``files`` the other files with their sizes, ``origins`` the level-1 blocks
    that the block descends from, ``produced_by`` the id of its group in the bucket.

    ``reason`` is why the block is excluded from compaction (a no-compact mark, quarantine), or where its data is now.
    ``visible_at_ms`` is when its ``meta.json`` was first known to be in the bucket; the block is planned only from then
    on. ``group`` is the group that merges or merged it, ``made_by`` the job that wrote it.
    """

    tenant = models.ForeignKey(BucketTenant, on_delete=models.CASCADE, related_name="blocks", db_index=False)
    ulid = UlidField()
    state = models.CharField(max_length=10, choices=BlockState, default=BlockState.LIVE)
    min_time_ms = models.BigIntegerField()
    max_time_ms = models.BigIntegerField()
    level = models.PositiveIntegerField()
    group_key = ByteOrderedField(max_length=KEY_MAX, blank=True)
    series = models.PositiveBigIntegerField(default=0)
    samples = models.PositiveBigIntegerField(default=0)
    tombstones = models.PositiveBigIntegerField(default=0)
    size_bytes = models.PositiveBigIntegerField()
    index_bytes = models.PositiveBigIntegerField(null=True)
    partition = models.PositiveIntegerField(default=0)
    partitions = models.PositiveIntegerField(default=1)
    produced_by = models.BigIntegerField(null=True)
    time_range_ms = models.BigIntegerField(null=True)
    origins = models.JSONField(default=list)
    hints = models.JSONField(default=list)
    is_failed = models.BooleanField(default=False)
    files = models.JSONField()
    meta = models.BinaryField()
    no_compact = models.CharField(max_length=REASON_MAX, blank=True)
    quarantined = models.CharField(max_length=REASON_MAX, blank=True)
    reason = models.CharField(max_length=REASON_MAX, blank=True)
    group = models.ForeignKey(Group, null=True, on_delete=models.PROTECT, related_name="sources")
    made_by = models.ForeignKey(Job, null=True, on_delete=models.PROTECT, related_name="tsdb_blocks")
    # 0 for blocks that existed when the bucket was adopted, null if unknown.
    uploaded_at_ms = models.BigIntegerField(null=True)
    found_at_ms = models.BigIntegerField()
    visible_at_ms = models.BigIntegerField(null=True)
    marked_at_ms = models.BigIntegerField(null=True)

    objects = ConfinedManager("tenant__name")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "ulid"], name="tsdb_block_unique"),
            models.CheckConstraint(
                condition=~Q(state=BlockState.OWNED) | Q(group__isnull=False), name="tsdb_block_owned_by_a_group"
            ),
        ]
        indexes = [
            # The blocks of a tenant by state: to plan, to mark, to delete.
            models.Index(fields=["tenant", "state", "min_time_ms"], name="tsdb_block_of_tenant"),
            # Lookup of blocks by ULID.
            models.Index(fields=["ulid"], name="tsdb_block_by_ulid"),
        ]
        ordering = ["tenant", "min_time_ms", "ulid"]

    def __str__(self) -> str:
        return self.ulid


class Part(models.Model):
    """One partition of a group, and its job. The job's specification names its source blocks.

    ``result`` is the block written, null while the job runs and if the result was empty.
    """

    group = models.ForeignKey(Group, on_delete=models.CASCADE, related_name="parts", db_index=False)
    partition = models.PositiveIntegerField()
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="tsdb_part")
    result = models.OneToOneField(Block, null=True, on_delete=models.PROTECT, related_name="part")
    is_done = models.BooleanField(default=False)
    # Token of the last failed run whose sources were verified, and the progress of a verification that has not ended:
    # {"token": token of the run, "sound": ULIDs of blocks that can be read}.
    verified_token = models.BigIntegerField(default=0)
    examined = models.JSONField(default=dict)
    # Number of consecutive verifications that could not read a source, and time of the next attempt (back-off).
    unread = models.PositiveIntegerField(default=0)
    recheck_at_ms = models.BigIntegerField(default=0)

    objects = ConfinedManager("group__tenant__name")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["group", "partition"], name="tsdb_part_unique")]
        ordering = ["group", "partition"]

    def __str__(self) -> str:
        return f"part {self.partition} of group {self.group_id}"


class BlockQuarantine(models.Model):
    """A source block that cannot be read: file, place in it, and error. It is not planned until it is released."""

    block = models.ForeignKey(Block, on_delete=models.CASCADE, related_name="quarantines", db_index=False)
    job = models.ForeignKey(Job, null=True, on_delete=models.SET_NULL, related_name="tsdb_quarantines")
    error_class = models.CharField(max_length=100)
    message = models.TextField(blank=True)
    file = models.CharField(max_length=100, blank=True)
    offset = models.BigIntegerField(default=-1)
    at_ms = models.BigIntegerField()
    command_index = models.BigIntegerField()
    released_at_ms = models.BigIntegerField(null=True)
    released_by = models.CharField(max_length=150, blank=True)
    release_why = models.CharField(max_length=REASON_MAX, blank=True)

    objects = ConfinedManager("block__tenant__name")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["block"], condition=Q(released_at_ms=None), name="tsdb_quarantine_holds_a_block_once"
            )
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"block {self.block_id}: {self.error_class}"


class OutboxStep(models.Model):
    """A write to the bucket. The steps of a tenant run in the order of their ids and are idempotent."""

    tenant = models.ForeignKey(BucketTenant, on_delete=models.CASCADE, related_name="steps", db_index=False)
    block = models.ForeignKey(Block, on_delete=models.CASCADE, related_name="steps")
    kind = models.CharField(max_length=20, choices=StepKind)
    detail = models.CharField(max_length=REASON_MAX, blank=True)
    # For a duplicate: the blocks that hold its data. They must be complete before the duplicate is marked.
    covered_by = models.JSONField(default=list)
    created_at_ms = models.BigIntegerField()
    done_at_ms = models.BigIntegerField(null=True)
    attempts = models.PositiveIntegerField(default=0)
    last_error = models.CharField(max_length=REASON_MAX, blank=True)

    objects = ConfinedManager("tenant__name")

    class Meta:
        indexes = [
            # The open steps of a tenant, in order.
            models.Index(fields=["tenant", "id"], condition=Q(done_at_ms=None), name="tsdb_step_open"),
        ]
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.kind} {self.block_id}"
