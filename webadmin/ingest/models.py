"""Push limits by tenant, and counts of accepted and rejected profiles.

Tenants are stored by name: a tenant without stored profiles has no row of its own, but its pushes can be rejected.
"""

from __future__ import annotations

from django.db import models

from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.database.fields import ByteOrderedField
from webadmin.ingest.tenant_limits import PushLimitName

ACTOR_MAX = 150
WHY_MAX = 500
OUTCOME_MAX = 60
MESSAGE_MAX = 500
ACCEPTED = "accepted"


class PushLimitChange(models.Model):
    """A change of a tenant's push limit; tenant "" is the default for all tenants, a null value removes the limit.

    For each tenant and limit, the row that no later row supersedes is in force.
    """

    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX, blank=True)
    name = ByteOrderedField(max_length=40, choices=[(name.value, name.value) for name in PushLimitName])
    value = models.BigIntegerField(null=True)
    is_superseded = models.BooleanField(default=False)
    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=ACTOR_MAX)
    why = models.CharField(max_length=WHY_MAX)

    objects = ConfinedManager("tenant", rules_for_all_tenants=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"], condition=models.Q(is_superseded=False), name="push_limit_one_in_force"
            ),
            models.CheckConstraint(
                condition=models.Q(value=None) | models.Q(value__gte=0), name="push_limit_is_no_debt"
            ),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.name} of {self.tenant or 'everybody'}"


class PushCount(models.Model):
    """Number of profiles of a tenant that were accepted, or rejected for one reason, with the last error message.

    Web processes count in memory and add the counts here every few seconds. Tenant "" is for unauthenticated requests.
    """

    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX, blank=True)
    outcome = models.CharField(max_length=OUTCOME_MAX)
    count = models.PositiveBigIntegerField(default=0)
    bytes = models.PositiveBigIntegerField(default=0, help_text="Uncompressed pprof and labels")
    last_at_ms = models.BigIntegerField()
    last_message = models.CharField(max_length=MESSAGE_MAX, blank=True)

    objects = ConfinedManager("tenant")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "outcome"], name="push_count_unique")]
        ordering = ["tenant", "outcome"]

    def __str__(self) -> str:
        return f"{self.tenant or 'unauthenticated'} {self.outcome}: {self.count}"
