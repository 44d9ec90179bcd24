"""Tenants, worker credentials and the audit log."""

from __future__ import annotations

from django.db import models

from webadmin.database.fields import ByteOrderedField

TENANT_NAME_MAX = 150


class Tenant(models.Model):
    """An owner of data. Segments mix tenants and belong to none."""

    name = ByteOrderedField(max_length=TENANT_NAME_MAX)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name"], name="tenant_name_unique"),
            models.CheckConstraint(condition=~models.Q(name=""), name="tenant_has_a_name"),
        ]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class WorkerCredential(models.Model):
    """What a node proves itself with: ``lw_<key_id>_<secret>``. The secret is shown once and kept as a hash only."""

    name = models.CharField(max_length=100)
    key_id = ByteOrderedField(max_length=16)
    # The secret has 256 random bits, so a plain hash is as good as a slow one.
    secret_hash = models.CharField(max_length=64)
    scopes = models.JSONField(default=list, help_text="What it may do, e.g. jobs:poll")
    created_at = models.DateTimeField(auto_now_add=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["key_id"], name="credential_key_id_unique"),
            models.UniqueConstraint(fields=["name"], name="credential_name_unique"),
        ]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def is_authenticated(self) -> bool:
        """Django REST framework asks its users this; a credential that reached a view was checked."""
        return True

    def has_scope(self, scope: str) -> bool:
        """Say whether this credential may do what the scope names."""
        return scope in self.scopes


class AuditEntry(models.Model):
    """Who changed what, beside the schedule's own command log."""

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=150)
    action = models.CharField(max_length=100)
    target = models.CharField(max_length=250, blank=True)
    detail = models.JSONField(default=dict)

    class Meta:
        verbose_name_plural = "audit entries"
        ordering = ["-id"]
        indexes = [models.Index(fields=["at"], name="audit_by_time")]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}".rstrip()
