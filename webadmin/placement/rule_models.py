"""The results and settings of placement: the rules in force, their history, limits and overrides.

Times are milliseconds of the database's clock.
"""

from __future__ import annotations

from django.db import models

from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.database.fields import ByteOrderedField

DATASET_NAME_MAX = 500
WHY_MAX = 500


class RulesHead(models.Model):
    """The single row with the rules in force and the state from which the next ones are built.

    ``document``, ``statistics`` and ``state`` are encoded by ``engine.placement``. ``round`` is incremented with every
    change of this row: of two builders that started from the same round, the later one detects the conflict.
    """

    round = models.BigIntegerField(default=0)
    version = models.BigIntegerField(default=0)
    document = models.BinaryField(default=bytes)
    statistics = models.BinaryField(default=bytes)
    state = models.BinaryField(default=bytes)
    # When building began: rules are published once the confidence period is over.
    started_at_ms = models.BigIntegerField(default=0)
    built_at_ms = models.BigIntegerField(default=0)
    # The position in the command log for new segments, and the missing numbers below it.
    read_index = models.BigIntegerField(default=0)
    gaps = models.JSONField(default=dict)
    # Usage is added in order of time: late segments count from here.
    read_until_ms = models.BigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "rules head"
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="placement_rules_head_one_row")]

    def __str__(self) -> str:
        return f"placement rules {self.version}"


class RulesVersion(models.Model):
    """A version of the rules that differs from the previous one, and why."""

    version = models.BigIntegerField()
    at_ms = models.BigIntegerField()
    reason = models.CharField(max_length=WHY_MAX)
    dataset_count = models.PositiveIntegerField()
    change_count = models.PositiveIntegerField()
    usage_bytes = models.PositiveBigIntegerField(help_text="bytes/s of all datasets")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["version"], name="placement_rules_version_unique")]
        ordering = ["-version"]

    def __str__(self) -> str:
        return f"rules {self.version}"


class RuleChange(models.Model):
    """What one version changed for one dataset; ``before`` and ``after`` are null where there was no rule."""

    version = models.BigIntegerField()
    at_ms = models.BigIntegerField()
    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX)
    dataset = ByteOrderedField(max_length=DATASET_NAME_MAX, blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    reason = models.CharField(max_length=WHY_MAX)

    objects = ConfinedManager("tenant")

    class Meta:
        indexes = [
            # "What happened to this dataset?" and "What did this version change?"
            models.Index(fields=["tenant", "dataset", "-id"], name="placement_change_of_dataset"),
            models.Index(fields=["version"], name="placement_change_by_version"),
            models.Index(fields=["at_ms"], name="placement_change_by_age"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.dataset} in rules {self.version}"


class PlacementLimit(models.Model):
    """Placement limits of a tenant, or of everybody (tenant ""); null means everybody's value, or the built-in one."""

    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX, blank=True)
    tenant_shards = models.PositiveIntegerField(null=True, blank=True)
    default_dataset_shards = models.PositiveIntegerField(null=True, blank=True)
    dataset_shards_min = models.PositiveIntegerField(null=True, blank=True)
    dataset_shards_max = models.PositiveIntegerField(null=True, blank=True)
    load_balancing = models.PositiveSmallIntegerField(null=True, blank=True)
    unit_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    burst_window_s = models.FloatField(null=True, blank=True)
    decay_window_s = models.FloatField(null=True, blank=True)
    may_leave_zone = models.BooleanField(null=True, blank=True)

    objects = ConfinedManager("tenant", rules_for_all_tenants=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant"], name="placement_limit_tenant_unique")]
        ordering = ["tenant"]

    def __str__(self) -> str:
        return self.tenant or "everybody"


class PlacementOverride(models.Model):
    """An operator's settings for one dataset; null means by load, ``shards`` pins it to these."""

    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX)
    dataset = ByteOrderedField(max_length=DATASET_NAME_MAX, blank=True)
    tenant_shards = models.PositiveIntegerField(null=True, blank=True)
    dataset_shards = models.PositiveIntegerField(null=True, blank=True)
    load_balancing = models.PositiveSmallIntegerField(null=True, blank=True)
    shards = models.JSONField(default=list)

    objects = ConfinedManager("tenant")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "dataset"], name="placement_override_dataset_unique"),
            models.CheckConstraint(condition=~models.Q(tenant=""), name="placement_override_of_a_tenant"),
        ]
        ordering = ["tenant", "dataset"]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.dataset}"


class PlacementChange(models.Model):
    """An operator's change as it was made: the history of limits and overrides."""

    class Subject(models.TextChoices):
        LIMITS = "limits", "limits"
        OVERRIDE = "override", "override"

    subject = models.CharField(max_length=10, choices=Subject)
    at_ms = models.BigIntegerField()
    actor = models.CharField(max_length=150)
    why = models.CharField(max_length=WHY_MAX, blank=True)
    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX, blank=True)
    dataset = ByteOrderedField(max_length=DATASET_NAME_MAX, blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)

    objects = ConfinedManager("tenant")

    class Meta:
        indexes = [models.Index(fields=["tenant", "dataset", "-id"], name="placement_decision_of_dataset")]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.subject} of {self.tenant or 'everybody'}/{self.dataset}".rstrip("/")
