"""Staff who are limited to tenants: members of groups named ``tenant:NAME``, in the words that credentials use.

Such a person is confined to those tenants, whatever permissions he has; superusers and members of ``tenant:*`` are not.
The middleware confines all queries of a request to the admin. The backend takes away every permission but to view
models with a tenant: what has none (workers, the command log, credentials, people) is closed, and nothing is changed.
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
"""Questions about profiles name one tenant, which is checked against ``tenants_of`` before anything is read."""


@functools.cache
def view_permissions() -> frozenset[str]:
    """Return the permissions to view models whose rows belong to tenants."""
    confined = [model._meta for model in apps.get_models() if tenant_path(model) is not None]
    return frozenset(f"{meta.app_label}.view_{meta.model_name}" for meta in confined)


def tenants_of(user: Any) -> frozenset[str] | None:
    """Return the tenants that a person is confined to by the names of his groups; None if he is not confined."""
    if not user.is_authenticated or user.is_superuser:
        return None
    if not hasattr(user, "_confined_tenants"):
        groups = user.groups.filter(name__startswith=TENANT_PREFIX).values_list("name", flat=True)
        names = frozenset(name.removeprefix(TENANT_PREFIX) for name in groups)
        user._confined_tenants = None if not names or ANY_TENANT in names else names
    return user._confined_tenants


class ConfinementMiddleware:
    """Confines requests to the admin to the tenants of who is signed in."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        path = request.path_info
        if not path.startswith(CONFINED_PATH) or path.startswith(OWN_CHECK_PATH):
            return self._get_response(request)
        with confine(tenants_of(request.user)):
            return self._get_response(request)


class ConfinedBackend(ModelBackend):
    """Django's permissions, of which confined people keep those to view models with a tenant."""

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        found = super().get_all_permissions(user_obj, obj)
        return found if tenants_of(user_obj) is None else found & view_permissions()
