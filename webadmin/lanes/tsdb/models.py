"""Buckets, whose blocks lie in them, the blocks, the groups that merge them, and what is still to be written there.

Columns named ``…_ms`` are milliseconds: the blocks' own times (ends exclusive) and wall time; command time where the
comment says so. What somebody else wrote into the bucket is taken as it is; what it means is in
``engine.lanes.tsdb.buckets``.
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
    """A bucket whose compactor we are. ``ranges`` are the lengths of intervals, each a multiple of the one before.

    ``readers_know_partitions``: all readers and compactors of it tell parts of a group from duplicates (Cortex with
    partitioning compaction); only then is a group cut into parts.
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
    """A folder of blocks, "" or ending in a slash. ``looked`` is what the last scan knew beside blocks: unfinished
    uploads, bad blocks and marks, so that the next one reads only what is new. It grows with them (some hundred bytes a
    mark): whoever joins a folder for another reason defers it."""

    bucket = models.ForeignKey(Bucket, on_delete=models.CASCADE, related_name="folders", db_index=False)
    name = ByteOrderedField(max_length=FOLDER_MAX, blank=True)
    looked = models.JSONField(default=dict)
    scanned_at_ms = models.BigIntegerField(null=True)
    # When all its objects were listed, not only the names of blocks and marks.
    listed_at_ms = models.BigIntegerField(null=True)
    # How many blocks of it ``looked`` names that could not be taken in: bad ones, and unfinished uploads.
    bad = models.PositiveIntegerField(default=0)
    partial = models.PositiveIntegerField(default=0)
    # Why its scans break off, how many in a row, and until when it is left alone for that.
    trouble = models.CharField(max_length=REASON_MAX, blank=True)
    failures = models.PositiveIntegerField(default=0)
    again_at_ms = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["bucket", "name"], name="tsdb_folder_unique")]
        ordering = ["bucket", "name"]

    def __str__(self) -> str:
        return self.name or "/"


class BucketTenant(models.Model):
    """Whose blocks they are, and how far their compaction is. ``refusal`` says why nothing is planned, "" if it is.

    ``slots`` are the intervals that hold blocks with what is to do in each, as the last plan saw them; ``waiting`` the
    blocks and ``compactions`` the merges between them and the fix-point. ``plan_at_ms`` is when to plan again.
    ``too_large`` are the groups that are not planned because they would have to be cut into parts, ``parts`` the
    published blocks that are parts of a group; both only where the bucket does not allow parts.
    """

    bucket = models.ForeignKey(Bucket, on_delete=models.CASCADE, related_name="tenants", db_index=False)
    folder = models.ForeignKey(Folder, on_delete=models.CASCADE, related_name="tenants")
    name = ByteOrderedField(max_length=TENANT_NAME_MAX)
    refusal = models.CharField(max_length=REASON_MAX, blank=True)
    refused_until_ms = models.BigIntegerField(null=True)
    is_deleted = models.BooleanField(default=False)
    planned_at_ms = models.BigIntegerField(null=True)
    plan_at_ms = models.BigIntegerField(null=True, default=0)
    # How many plans in a row broke off; ``refusal`` says why.
    failures = models.PositiveIntegerField(default=0)
    waiting = models.PositiveIntegerField(default=0)
    compactions = models.PositiveIntegerField(default=0)
    slots = models.JSONField(default=list)
    too_large = models.PositiveIntegerField(default=0)
    parts = models.PositiveIntegerField(default=0)
    index_wanted = models.PositiveBigIntegerField(default=0)
    index_written = models.PositiveBigIntegerField(default=0)
    index_written_at_ms = models.BigIntegerField(null=True)
    # Until when somebody has the turn to write the index.
    index_writer_until_ms = models.BigIntegerField(null=True)

    objects = ConfinedManager("name")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["bucket", "name"], name="tsdb_tenant_unique")]
        indexes = [
            # "Whose plan is due?"
            models.Index(fields=["plan_at_ms", "id"], condition=Q(plan_at_ms__isnull=False), name="tsdb_tenant_due"),
        ]
        ordering = ["bucket", "name"]

    def __str__(self) -> str:
        return self.name


class Group(models.Model):
    """Blocks of one interval that are merged together into ``partitions`` parts; done when all its parts are."""

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
    # What reading the sources of a failed job alone showed.
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
            # "What is done, and what goes on, for this tenant?"
            models.Index(fields=["tenant", "state", "-id"], name="tsdb_group_of_tenant"),
        ]
        ordering = ["-id"]

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.range_ms

    def __str__(self) -> str:
        return f"group {self.id}"


class Block(models.Model):
    """A block of a bucket as its ``meta.json`` tells. ``meta`` are that file's bytes, ``files`` the others with sizes,
    ``origins`` the level-1 blocks that it descends from; ``produced_by`` is the id that its group had in the bucket.

    ``reason`` is why it is kept out of compaction (a no-compact mark, quarantine), or where its data is now.
    ``visible_at_ms`` is when we knew its ``meta.json`` in the bucket; only then is it planned from. ``group`` is what
    merges or merged it, ``made_by`` the job that wrote it.
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
    # 0 of a block that was there when the bucket was adopted, null where nothing tells it.
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
            # "What is there to plan from, to mark, to delete?"
            models.Index(fields=["tenant", "state", "min_time_ms"], name="tsdb_block_of_tenant"),
            # "Where is the block of this name?"
            models.Index(fields=["ulid"], name="tsdb_block_by_ulid"),
        ]
        ordering = ["tenant", "min_time_ms", "ulid"]

    def __str__(self) -> str:
        return self.ulid


class Part(models.Model):
    """One partition of a group and its job; ``result`` is the block it wrote, null while it runs or if nothing was
    left. The blocks that hold something for it are named in the job's specification."""

    group = models.ForeignKey(Group, on_delete=models.CASCADE, related_name="parts", db_index=False)
    partition = models.PositiveIntegerField()
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="tsdb_part")
    result = models.OneToOneField(Block, null=True, on_delete=models.PROTECT, related_name="part")
    is_done = models.BooleanField(default=False)
    # The token of the last failed run after which its sources were looked at, and how far a look at them is that has
    # not ended: {"token": that of the run, "sound": ids of blocks}.
    verified_token = models.BigIntegerField(default=0)
    looked = models.JSONField(default=dict)
    # How many looks in a row could not read a source, and until when it is left alone for that.
    unread = models.PositiveIntegerField(default=0)
    look_again_at_ms = models.BigIntegerField(default=0)

    objects = ConfinedManager("group__tenant__name")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["group", "partition"], name="tsdb_part_unique")]
        ordering = ["group", "partition"]

    def __str__(self) -> str:
        return f"part {self.partition} of group {self.group_id}"


class BlockQuarantine(models.Model):
    """A source that cannot be read: which file of it, where in it, and the error. It is not planned until release."""

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
    """Something to write to the bucket, in the order of the rows of a tenant; doing it twice is the same as once."""

    tenant = models.ForeignKey(BucketTenant, on_delete=models.CASCADE, related_name="steps", db_index=False)
    block = models.ForeignKey(Block, on_delete=models.CASCADE, related_name="steps")
    kind = models.CharField(max_length=20, choices=StepKind)
    detail = models.CharField(max_length=REASON_MAX, blank=True)
    # Of a duplicate: the blocks that hold its data, and must be whole before it is marked.
    covered_by = models.JSONField(default=list)
    created_at_ms = models.BigIntegerField()
    done_at_ms = models.BigIntegerField(null=True)
    attempts = models.PositiveIntegerField(default=0)
    last_error = models.CharField(max_length=REASON_MAX, blank=True)

    objects = ConfinedManager("tenant__name")

    class Meta:
        indexes = [
            # "What is to be written for this tenant, in order?"
            models.Index(fields=["tenant", "id"], condition=Q(done_at_ms=None), name="tsdb_step_open"),
        ]
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.kind} {self.block_id}"
