"""Level queues, which contain the blocks that no job owns, and the policies for making jobs of them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.database.fields import ByteOrderedField
from webadmin.schedule.models import LANE_MAX


class LevelQueue(models.Model):
    """The unowned blocks of one lane, tenant, shard and level; the sums save polls from reading the blocks.

    ``tenant`` is "" for segments. ``ready_at_ms`` is the moment from which a job can be made of them, null if the queue
    is empty; ``priority_ms`` the position of that job among those of the tenant. ``is_marked_ready`` is set once a poll
    has found the queue ready and its tenant awake (``TenantShare``); both change only under the head of the log.
    """

    lane = ByteOrderedField(max_length=LANE_MAX)
    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX, blank=True)
    shard = models.PositiveBigIntegerField()
    level = models.PositiveSmallIntegerField()
    block_count = models.PositiveBigIntegerField(default=0)
    byte_count = models.PositiveBigIntegerField(default=0)
    oldest_arrival_ms = models.BigIntegerField(null=True)
    newest_arrival_ms = models.BigIntegerField(null=True)
    ready_at_ms = models.BigIntegerField(null=True)
    priority_ms = models.BigIntegerField(null=True)
    served_at_ms = models.BigIntegerField(default=0)
    is_marked_ready = models.BooleanField(default=False)

    objects = ConfinedManager("tenant")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["lane", "tenant", "shard", "level"], name="level_queue_key_unique"),
            models.CheckConstraint(
                condition=Q(block_count=0, byte_count=0, ready_at_ms=None, oldest_arrival_ms=None)
                | Q(block_count__gt=0, ready_at_ms__isnull=False, oldest_arrival_ms__isnull=False),
                name="level_queue_is_ready_some_time",
            ),
        ]
        indexes = [
            # Queues that have become ready and are not noticed yet, the oldest first (poll).
            models.Index(
                fields=["ready_at_ms", "id"],
                condition=Q(block_count__gt=0, is_marked_ready=False),
                name="level_queue_ready",
            ),
            # The first ready queue of this tenant (poll).
            models.Index(
                fields=["lane", "tenant", "priority_ms", "id"],
                condition=Q(block_count__gt=0, is_marked_ready=True),
                name="level_queue_of_tenant",
            ),
        ]
        ordering = ["level", "lane", "tenant", "shard"]

    def __str__(self) -> str:
        return f"{self.lane} {self.tenant or 'segments'} shard {self.shard} level {self.level}"


class LevelPolicy(models.Model):
    """When the blocks of a level make a job: count, age of the oldest, spread of their creation, bytes (0: no limit).

    ``tenant`` "" is the default for tenants without a row, and for segments. ``result_bytes_max`` limits the size of a
    result block. ``partial_batch_bytes`` above 0 lets small partial batches of several shards be merged by one job
    (``engine.lanes.profiles.plan.consolidation``).
    """

    lane = ByteOrderedField(max_length=LANE_MAX)
    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX, blank=True, default="")
    level = models.PositiveSmallIntegerField()
    blocks_max = models.PositiveIntegerField()
    age_seconds = models.PositiveIntegerField()
    spread_seconds = models.PositiveIntegerField()
    bytes_max = models.PositiveBigIntegerField(default=0)
    result_bytes_max = models.PositiveBigIntegerField(default=0)
    partial_batch_bytes = models.PositiveBigIntegerField(default=0)
    partial_batch_age_seconds = models.PositiveIntegerField(default=0)

    objects = ConfinedManager("tenant", rules_for_all_tenants=True)

    class Meta:
        verbose_name_plural = "level policies"
        constraints = [
            models.UniqueConstraint(fields=["lane", "tenant", "level"], name="level_policy_key_unique"),
            models.CheckConstraint(condition=Q(blocks_max__gt=0) & Q(blocks_max__lte=1000), name="level_policy_count"),
        ]
        ordering = ["lane", "level", "tenant"]

    def __str__(self) -> str:
        return f"{self.lane} level {self.level} {self.tenant}".rstrip()
