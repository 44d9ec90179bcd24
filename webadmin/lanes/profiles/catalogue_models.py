"""What makes the index quick to ask and possible to build again: the services there are, the lineage in the bucket."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import Tenant
from webadmin.base.database.fields import ByteOrderedField


class TenantService(models.Model):
    """One (tenant, dataset name, label sets) that some dataset has or had: what queries match labels against.

    No dataset of it covers more than ``span_max_ms``, so that a query of the index by the end of the data can stop
    so much after the end of its range. Rows only come, and spans only grow.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    name = models.ForeignKey("profiles.DatasetName", on_delete=models.CASCADE, related_name="+", db_index=False)
    label_sets = models.ForeignKey("profiles.LabelSets", on_delete=models.CASCADE, related_name="+", db_index=False)
    span_max_ms = models.BigIntegerField()

    objects = ConfinedManager("tenant__name")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name", "label_sets"], name="tenant_service_unique"),
        ]
        # "The next services of this tenant" (query)
        indexes = [models.Index(fields=["tenant", "id"], name="tenant_service_in_batches")]

    def __str__(self) -> str:
        return f"{self.tenant_id}/{self.name_id}"


class LineageMark(models.Model):
    """Up to which command the bucket itself tells what was merged into what; the one row has number 1.

    It also tells of the blocks from elsewhere up to the row ``foreign_block``; rows up to ``seen_block`` were there
    when somebody looked before. ``swept_record`` is the last ``LineageObject`` that the sweep has looked at,
    ``unknown_segments`` how many segments that the index does not know the last sweep of orphans left in the bucket.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    recorded_index = models.BigIntegerField(default=0)
    foreign_block = models.BigIntegerField(default=0)
    seen_block = models.BigIntegerField(default=0)
    swept_record = models.BigIntegerField(default=0)
    unknown_segments = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="lineage_mark_is_one_row")]

    def __str__(self) -> str:
        return f"lineage recorded up to {self.recorded_index}"


class LineageObject(models.Model):
    """A lineage record that is in the bucket: what ``job`` replaced, or (null) what this command removed."""

    key = ByteOrderedField(max_length=200)
    command_index = models.BigIntegerField()
    job = models.ForeignKey("schedule.Job", null=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key"], name="lineage_object_unique")]

    def __str__(self) -> str:
        return self.key


class SweptTotal(models.Model):
    """How much a sweep has taken away, or how often something happened, since the beginning, and when last."""

    what = ByteOrderedField(max_length=20)
    count = models.BigIntegerField(default=0)
    at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["what"], name="swept_total_unique")]

    def __str__(self) -> str:
        return f"{self.what}: {self.count}"
