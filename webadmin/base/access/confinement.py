"""Which rows a person who is signed in may see: the one rule for staff who are limited to tenants.

``confined_staff`` says who is confined to which tenants, and sets them for the time of a request to the admin. While
they are set, the managers of all models below return the rows of these tenants only, so every list, count, page and
search of the request follows the rule without naming it. Code must use these managers, not raw SQL, for what it shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from django.db import models
from django.db.models import Q

EVERYBODY = ""
"""The tenant of rules that hold for all tenants."""
HIDDEN: Final = None
"""Rows that are of no tenant and may name any."""

TENANT_OF: dict[str, str | None] = {
    "access.AuditEntry": HIDDEN,
    "access.Tenant": "name",
    "access.WorkerCredential": HIDDEN,
    "catalog.Branch": "repository__tenant",
    "catalog.BranchWatch": "branch__repository__tenant",
    "catalog.Collection": "repository__tenant",
    "catalog.Commit": "repository__tenant",
    "catalog.Compaction": "repository__tenant",
    "catalog.CompactionPolicy": "repository__tenant",
    "catalog.Repository": "tenant",
    "catalog.Tag": "repository__tenant",
    "catalog_api.ImportRun": "repository__tenant",
    "profiles.Block": "tenant__name",
    "profiles.BlockLineage": "result__tenant__name",
    "profiles.Dataset": "tenant__name",
    "profiles.DeadLetter": "tenant",
    "profiles.DeleteRequest": "tenant__name",
    "profiles.DeletionCertificate": "request__tenant__name",
    "profiles.LegalHold": "tenant",
    "profiles.RefusalCount": HIDDEN,
    "profiles.RetentionRule": "tenant",
    "profiles.TenantService": "tenant__name",
    "profiles.Tombstone": "block__tenant__name",
    "placement.PlacementChange": "tenant",
    "placement.PlacementLimit": "tenant",
    "placement.PlacementOverride": "tenant",
    "placement.RuleChange": "tenant",
    "ingest.PushCount": "tenant",
    "ingest.PushLimitChange": "tenant",
    "progress.FlowMinute": "tenant",
    "progress.ParkedJob": "tenant",
    "schedule.Attempt": "job__tenant",
    "schedule.Command": HIDDEN,
    "schedule.IsolationStop": HIDDEN,
    "schedule.Job": "tenant",
    "profiles.LevelPolicy": "tenant",
    "profiles.LevelQueue": "tenant",
    "schedule.LimitChange": "scope_value",
    "schedule.Pause": "scope_value",
    "schedule.Quarantine": "block__tenant__name",
    "schedule.TenantShare": "tenant",
    "tables.BadFile": "source__tenant",
    "tables.Chunk": "source__tenant",
    "tables.ChunkOrder": "source__tenant",
    "tables.DataSource": "tenant",
    "tables.DiscardedOutput": "source__tenant",
    "tables.Manifest": "source__tenant",
    "tables.Policy": "source__tenant",
    "tables.Registration": "source__tenant",
    "tables.Segment": "source__tenant",
    "tables.Task": "source__tenant",
    "tables.TaskChunk": "source__tenant",
    "tsdb.Block": "tenant__name",
    "tsdb.BlockQuarantine": "block__tenant__name",
    "tsdb.Bucket": HIDDEN,
    "tsdb.BucketTenant": "name",
    "tsdb.Group": "tenant__name",
    "tsdb.OutboxStep": "tenant__name",
    "tsdb.Part": "group__tenant__name",
}
"""From each confined model to the column with its tenant's name."""
RULES_FOR_EVERYBODY = {
    "profiles.LegalHold",
    "profiles.RetentionRule",
    "placement.PlacementLimit",
    "ingest.PushLimitChange",
    "profiles.LevelPolicy",
}
"""Models whose rows of the tenant EVERYBODY hold for each tenant, so each may see them."""
SCOPED = {"schedule.LimitChange", "schedule.Pause"}
"""Models whose rows name their tenant as the value of a scope; other kinds of scope but jobs hold for all tenants."""

_tenants: ContextVar[frozenset[str] | None] = ContextVar("confined_tenants", default=None)


def confined_tenants() -> frozenset[str] | None:
    """Return the tenants that the current request is confined to; None if it is not confined."""
    return _tenants.get()


def may_see(tenant: str) -> bool:
    """Say whether the current request may show a tenant, for what is not read through a confined model."""
    tenants = _tenants.get()
    return tenants is None or tenant in tenants


def cache_key(name: str) -> str:
    """Return the key of a cached answer for the current confinement."""
    tenants = _tenants.get()
    return name if tenants is None else f"{name}:{hash_names(tenants)}"


def hash_names(names: Iterable[str]) -> str:
    """Return a short text that tells sets of names apart, fit for keys of any cache."""
    return hashlib.sha256("\0".join(sorted(names)).encode()).hexdigest()[:32]


@contextmanager
def confine(tenants: Set[str] | None) -> Iterator[None]:
    """Confine every query of confined models in this block; None lifts the confinement."""
    token = _tenants.set(None if tenants is None else frozenset(tenants))
    try:
        yield
    finally:
        _tenants.reset(token)


class ConfinedManager(models.Manager):
    """The manager of a model in TENANT_OF."""

    def get_queryset(self) -> models.QuerySet:
        rows = super().get_queryset()
        tenants = _tenants.get()
        return rows if tenants is None else rows.filter(_rule(self.model, tenants))


def _rule(model: type[models.Model], tenants: frozenset[str]) -> Q:
    label = model._meta.label
    path = TENANT_OF[label]
    if path is HIDDEN:
        return Q(pk__in=[])
    if label in SCOPED:
        return Q(scope_kind="tenant", scope_value__in=tenants) | ~Q(scope_kind__in=["tenant", "job"])
    shared = {EVERYBODY} if label in RULES_FOR_EVERYBODY else set()
    return Q(**{f"{path}__in": tenants | shared})
