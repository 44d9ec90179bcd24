"""Tables for fast queries and for rebuilding: known services, and the lineage recorded in the bucket."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import Tenant
from webadmin.base.database.fields import ByteOrderedField


class TenantService(models.Model):
    """One (tenant, dataset name, label sets) that a dataset has or had; queries match labels against these rows.

    No dataset of it covers more than ``span_max_ms``, so that a query by the end of the data can stop that much after
    the end of its range. Rows are only added, and spans only grow.
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
        # The next services of this tenant (query).
        indexes = [models.Index(fields=["tenant", "id"], name="tenant_service_in_batches")]

    def __str__(self) -> str:
        return f"{self.tenant_id}/{self.name_id}"


class LineageMark(models.Model):
    """The command up to which lineage is recorded in the bucket; the only row has number 1.

    Foreign blocks are recorded up to the row ``foreign_block``; rows up to ``seen_block`` existed at the previous run.
    ``swept_record`` is the last ``LineageObject`` that the sweep has checked, ``unknown_segments`` the number of
    segments unknown to the index that the last sweep of orphans left in the bucket.
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
    """A lineage record in the bucket: the blocks replaced by ``job``, or (null) removed by this command."""

    key = ByteOrderedField(max_length=200)
    command_index = models.BigIntegerField()
    job = models.ForeignKey("schedule.Job", null=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key"], name="lineage_object_unique")]

    def __str__(self) -> str:
        return self.key


class SweptTotal(models.Model):
    """The total of a sweep or event since installation, and the time of the last one."""

    what = ByteOrderedField(max_length=20)
    count = models.BigIntegerField(default=0)
    at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["what"], name="swept_total_unique")]

    def __str__(self) -> str:
        return f"{self.what}: {self.count}"
