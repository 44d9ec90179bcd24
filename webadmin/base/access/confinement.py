"""Which rows a signed-in user may see: the single rule for staff who are limited to tenants.

``confined_staff`` determines which users are confined to which tenants and sets them for the duration of a request to
the admin. While they are set, each ``ConfinedManager`` returns the rows of these tenants only, so every list, count,
page and search of the request follows the rule. Code must use these managers, not raw SQL, for rows that it displays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from django.db import models
from django.db.models import Q

Row = TypeVar("Row", bound=models.Model)
ALL_TENANTS = ""
"""The tenant of rules that hold for all tenants."""
_tenants: ContextVar[frozenset[str] | None] = ContextVar("confined_tenants", default=None)


def confined_tenants() -> frozenset[str] | None:
    """Return the tenants that the current request is confined to; None if it is not confined."""
    return _tenants.get()


def may_see(tenant: str) -> bool:
    """Return whether the current request may show a tenant; for data that is not read through a confined model."""
    tenants = _tenants.get()
    return tenants is None or tenant in tenants


def cache_key(name: str) -> str:
    """Return the key of a cached answer for the current confinement."""
    tenants = _tenants.get()
    return name if tenants is None else f"{name}:{hash_names(tenants)}"


def hash_names(names: Iterable[str]) -> str:
    """Return a short digest of a set of names, usable in keys of any cache."""
    return hashlib.sha256("\0".join(sorted(names)).encode()).hexdigest()[:32]


@contextmanager
def confine(tenants: Set[str] | None) -> Iterator[None]:
    """Confine every query of confined models in this block to these tenants; None lifts the confinement."""
    token = _tenants.set(None if tenants is None else frozenset(tenants))
    try:
        yield
    finally:
        _tenants.reset(token)


class ConfinedManager(models.Manager[Row]):
    """The manager of a model whose rows belong to tenants.

    ``tenant_path`` is the lookup of the tenant's name; None hides all rows from confined requests, for models whose
    rows belong to no tenant and may name any. With ``rules_for_all_tenants`` rows of the tenant ALL_TENANTS apply to
    all tenants and are visible to all. With ``is_scoped`` rows name their tenant as the value of a scope; scopes of
    other kinds, except jobs, apply to all tenants.
    """

    def __init__(
        self, tenant_path: str | None = None, *, rules_for_all_tenants: bool = False, is_scoped: bool = False
    ) -> None:
        super().__init__()
        self.tenant_path = tenant_path
        self._rules_for_all_tenants = rules_for_all_tenants
        self._is_scoped = is_scoped

    def get_queryset(self) -> models.QuerySet[Row]:
        rows = super().get_queryset()
        tenants = _tenants.get()
        return rows if tenants is None else rows.filter(self._rule(tenants))

    def _rule(self, tenants: frozenset[str]) -> Q:
        if self.tenant_path is None:
            return Q(pk__in=[])
        if self._is_scoped:
            return Q(scope_kind="tenant", scope_value__in=tenants) | ~Q(scope_kind__in=["tenant", "job"])
        shared = {ALL_TENANTS} if self._rules_for_all_tenants else set()
        return Q(**{f"{self.tenant_path}__in": tenants | shared})


def tenant_path(model: type[models.Model]) -> str | None:
    """Return the lookup of a row's tenant; None for models without tenants, which confined staff may not view."""
    manager = model._default_manager
    return manager.tenant_path if isinstance(manager, ConfinedManager) else None
