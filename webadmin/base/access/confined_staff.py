"""Staff who are limited to tenants: members of groups named ``tenant:NAME``, the form that scopes of credentials have.

Such a user is confined to those tenants, whatever other permissions the user has; superusers and members of
``tenant:*`` are not confined. The middleware confines all queries of a request to the admin. The backend removes every
permission except to view models with a tenant: models without one (workers, the command log, credentials, users) are
not visible, and nothing can be changed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django.apps import apps
from django.contrib.auth.backends import ModelBackend
from django.http import HttpRequest, HttpResponse

from webadmin.base.access.confinement import confine, tenant_path
from webadmin.base.access.scopes import ANY_TENANT, TENANT_PREFIX

CONFINED_PATH = "/admin/"
OWN_CHECK_PATH = "/admin/flame-graph/data/"
"""Profile data of the admin's flame graph: the request names one tenant, which the view checks against
``tenants_of``.
"""


@functools.cache
def view_permissions() -> frozenset[str]:
    """Return the permissions to view models whose rows belong to tenants."""
    confined = [model._meta for model in apps.get_models() if tenant_path(model) is not None]
    return frozenset(f"{meta.app_label}.view_{meta.model_name}" for meta in confined)


def tenants_of(user: Any) -> frozenset[str] | None:
    """Return the tenants that a user is confined to by group names; None if the user is not confined."""
    if not user.is_authenticated or user.is_superuser:
        return None
    if not hasattr(user, "_confined_tenants"):
        groups = user.groups.filter(name__startswith=TENANT_PREFIX).values_list("name", flat=True)
        names = frozenset(name.removeprefix(TENANT_PREFIX) for name in groups)
        user._confined_tenants = None if not names or ANY_TENANT in names else names
    tenants: frozenset[str] | None = user._confined_tenants
    return tenants


class ConfinementMiddleware:
    """Confine requests to the admin to the tenants of the signed-in user."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        path = request.path_info
        if not path.startswith(CONFINED_PATH) or path.startswith(OWN_CHECK_PATH):
            return self._get_response(request)
        with confine(tenants_of(request.user)):
            return self._get_response(request)


class ConfinedBackend(ModelBackend):
    """Django's permissions; a confined user keeps only those to view models with a tenant."""

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        found = super().get_all_permissions(user_obj, obj)
        return found if tenants_of(user_obj) is None else found & view_permissions()
