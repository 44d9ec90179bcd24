"""What makes the index quick to ask and possible to build again: the services there are, the lineage in the bucket."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from webadmin.access.models import Tenant


class TenantService(models.Model):
    """One (tenant, dataset name, label sets) that some dataset has or had: what queries match labels against.

    No dataset of it covers more than ``span_max_ms``, so that a query of the index by the end of the data can stop
    so much after the end of its range. Rows only come, and spans only grow.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    name = models.ForeignKey("index.DatasetName", on_delete=models.CASCADE, related_name="+", db_index=False)
    label_sets = models.ForeignKey("index.LabelSets", on_delete=models.CASCADE, related_name="+", db_index=False)
    span_max_ms = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name", "label_sets"], name="tenant_service_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id}/{self.name_id}"


class LineageMark(models.Model):
    """Up to which command the bucket itself tells what was merged into what; the one row has number 1."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    recorded_index = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="lineage_mark_is_one_row")]

    def __str__(self) -> str:
        return f"lineage recorded up to {self.recorded_index}"
