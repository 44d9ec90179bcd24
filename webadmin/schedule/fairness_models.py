"""Virtual times of lanes and tenants: one row each, so that a poll reads only those with the least by index.

Weights and caps are limits (``operation_models``). Rows are inserted when a lane or tenant first has work, and change
only under the head of the log.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.database.fields import ByteOrderedField

LANE_NAME_MAX = 20


class LaneShare(models.Model):
    """A lane's virtual times (``engine.schedule.fairness``)."""

    lane = ByteOrderedField(max_length=LANE_NAME_MAX)
    tenant_time = models.BigIntegerField(default=0)
    virtual_time = models.BigIntegerField(default=0)
    started_time = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["lane"], name="lane_share_unique")]
        ordering = ["lane"]

    def __str__(self) -> str:
        return self.lane


class TenantShare(models.Model):
    """The virtual times of a tenant ("" = segments) in a lane; ``is_awake``: one of its queues is marked as ready."""

    lane = ByteOrderedField(max_length=LANE_NAME_MAX)
    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX, blank=True)
    virtual_time = models.BigIntegerField(default=0)
    is_awake = models.BooleanField(default=False)

    objects = ConfinedManager("tenant")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["lane", "tenant"], name="tenant_share_unique")]
        indexes = [
            # "Which tenant with work has the least virtual time?" (poll)
            models.Index(
                fields=["lane", "virtual_time", "tenant"], condition=Q(is_awake=True), name="tenant_share_neediest"
            ),
        ]
        ordering = ["lane", "tenant"]

    def __str__(self) -> str:
        return f"{self.lane} {self.tenant or 'segments'}"
