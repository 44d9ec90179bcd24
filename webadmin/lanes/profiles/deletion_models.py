"""Deletion of data: retention rules, legal holds, delete requests and their certificates.

Tenants are stored by name, not by foreign key, where a rule may be created before the first data arrives. ``…_at_ms``
are command time; ``command_index`` is the entry of the log that created the row.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import TENANT_NAME_MAX, Tenant
from webadmin.base.database.fields import ByteOrderedField

ACTOR_MAX = 150
WHY_MAX = 500
SELECTOR_MAX = 10_000
SERVICE_MAX = 500
KEEP_DAYS_MAX = 36_500


class RetentionRule(models.Model):
    """Number of days after its end for which a tenant's data is kept; 0 keeps it forever.

    Tenant "" is the default for tenants without a rule.
    """

    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX, blank=True)
    keep_days = models.PositiveIntegerField()
    at = models.DateTimeField(auto_now=True)
    actor = models.CharField(max_length=ACTOR_MAX)
    why = models.CharField(max_length=WHY_MAX)

    objects = ConfinedManager("tenant", rules_for_all_tenants=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant"], name="retention_rule_tenant_unique"),
            models.CheckConstraint(condition=Q(keep_days__lte=KEEP_DAYS_MAX), name="retention_rule_is_possible"),
        ]
        ordering = ["tenant"]

    def __str__(self) -> str:
        return f"{self.tenant or 'everybody'}: {self.keep_days} days"


class LegalHold(models.Model):
    """While it is in force, nothing of the tenant is removed, neither by retention nor by request."""

    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX)
    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=ACTOR_MAX)
    why = models.CharField(max_length=WHY_MAX)
    ended_at = models.DateTimeField(null=True)
    ended_by = models.CharField(max_length=ACTOR_MAX, blank=True)

    objects = ConfinedManager("tenant", rules_for_all_tenants=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(tenant=""), name="legal_hold_names_a_tenant"),
            models.UniqueConstraint(
                fields=["tenant"], condition=Q(ended_at=None), name="legal_hold_unique_while_it_lasts"
            ),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"hold on {self.tenant}"


class DeleteState(models.TextChoices):
    """State of a delete request."""

    HIDDEN = "hidden", "hidden"  # no query returns the data; objects still contain it
    DONE = "done", "done"  # no object of the index contains it


class DeleteRequest(models.Model):
    """A predicate: rows of the tenant that match it and were accepted before ``command_index`` are deleted.

    ``service`` "" and ``selector`` "" match everything. Times are of the data, unix milliseconds, ``[from_ms,
    until_ms)``, null without bound. ``hidden_…`` count what contained, or could contain, such data when the request was
    made.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="delete_requests", db_index=False)
    service = ByteOrderedField(max_length=SERVICE_MAX, blank=True)
    selector = models.CharField(max_length=SELECTOR_MAX, blank=True)
    from_ms = models.BigIntegerField(null=True)
    until_ms = models.BigIntegerField(null=True)
    command_index = models.BigIntegerField()
    requested_at_ms = models.BigIntegerField()
    deadline_at_ms = models.BigIntegerField(help_text="When nothing may be left to rewrite")
    state = models.CharField(max_length=10, choices=DeleteState, default=DeleteState.HIDDEN)
    hidden_blocks = models.PositiveIntegerField(default=0)
    hidden_datasets = models.PositiveIntegerField(default=0)
    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=ACTOR_MAX)
    why = models.CharField(max_length=WHY_MAX)

    objects = ConfinedManager("tenant__name")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["command_index"], name="delete_request_command_unique"),
            models.CheckConstraint(
                condition=Q(from_ms=None) | Q(until_ms=None) | Q(until_ms__gt=models.F("from_ms")),
                name="delete_request_covers_some_time",
            ),
        ]
        indexes = [
            # The data hidden from this tenant's queries, which merges must leave out.
            models.Index(
                fields=["tenant", "command_index"], condition=Q(state=DeleteState.HIDDEN), name="delete_request_hidden"
            ),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"delete request {self.command_index} of {self.tenant}"


class DeletionCertificate(models.Model):
    """Certificate that at a moment no object in the index contained data of a request.

    A later import may require another one.
    """

    request = models.ForeignKey(DeleteRequest, on_delete=models.PROTECT, related_name="certificates")
    command_index = models.BigIntegerField()
    issued_at_ms = models.BigIntegerField()
    at = models.DateTimeField(auto_now_add=True)
    detail = models.JSONField(default=dict)

    objects = ConfinedManager("request__tenant__name")

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"certificate of request {self.request_id}"
