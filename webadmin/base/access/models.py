"""Tenants, worker credentials, the audit log, and counts of refused requests."""

from __future__ import annotations

from django.db import models

from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.database.fields import ByteOrderedField

TENANT_NAME_MAX = 150
CREDENTIAL_NAME_MAX = 100
REFUSAL_CODE_MAX = 50
REFUSAL_REASON_MAX = 500


class Tenant(models.Model):
    """An owner of data. Segments contain data of several tenants and belong to none."""

    name = ByteOrderedField(max_length=TENANT_NAME_MAX)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ConfinedManager("name")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name"], name="tenant_name_unique"),
            models.CheckConstraint(condition=~models.Q(name=""), name="tenant_has_a_name"),
        ]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class WorkerCredential(models.Model):
    """A credential ``lw_<key_id>_<secret>``. The secret is shown once and stored as a hash only.

    A rotation changes the secret and keeps the key id; ``previous_secret_hash`` is accepted until
    ``previous_valid_until`` (null: there is none). After ``expires_at`` (null: never) no secret is accepted. At most
    one credential that is not revoked has a name.
    """

    name = models.CharField(max_length=CREDENTIAL_NAME_MAX)
    key_id = ByteOrderedField(max_length=16)
    # The secret has 256 random bits, so a fast hash is as secure as a slow one.
    secret_hash = models.CharField(max_length=64)
    scopes = models.JSONField(default=list, help_text="What it may do, e.g. jobs:poll")
    previous_secret_hash = models.CharField(max_length=64, blank=True, default="", db_default="")
    previous_valid_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = ConfinedManager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["key_id"], name="credential_key_id_unique"),
            models.UniqueConstraint(
                fields=["name"], condition=models.Q(revoked_at=None), name="credential_in_use_name_unique"
            ),
        ]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def is_authenticated(self) -> bool:
        """True, for Django REST framework: a credential that reached a view has been authenticated."""
        return True

    def has_scope(self, scope: str) -> bool:
        """Return whether this credential has a scope."""
        return scope in self.scopes


class RevokedSecret(models.Model):
    """The hash of a secret that was revoked or replaced; published in the object store for a day."""

    secret_hash = models.CharField(max_length=64)
    revoked_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["secret_hash"], name="revoked_secret_unique")]
        indexes = [models.Index(fields=["revoked_at"], name="revoked_secret_by_time")]

    def __str__(self) -> str:
        return self.secret_hash[:16]


class AuditEntry(models.Model):
    """An audit entry: who changed what, outside the schedule's command log."""

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=150)
    action = models.CharField(max_length=100)
    target = models.CharField(max_length=250, blank=True)
    detail = models.JSONField(default=dict)

    objects = ConfinedManager()

    class Meta:
        verbose_name_plural = "audit entries"
        ordering = ["-id"]
        indexes = [models.Index(fields=["at"], name="audit_by_time")]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}".rstrip()


class RefusalCount(models.Model):
    """How often blocks of one sender were rejected for one reason, and the last rejection."""

    actor = models.CharField(max_length=150)
    code = models.CharField(max_length=REFUSAL_CODE_MAX)
    count = models.PositiveBigIntegerField(default=0)
    last_at_ms = models.BigIntegerField()
    last_reason = models.CharField(max_length=REFUSAL_REASON_MAX)

    objects = ConfinedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["actor", "code"], name="refusal_count_unique")]
        ordering = ["actor", "code"]

    def __str__(self) -> str:
        return f"{self.actor} {self.code}: {self.count}"
