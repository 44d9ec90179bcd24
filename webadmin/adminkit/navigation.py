"""The side bar of the admin, built of the entries of each application.

An application lists its groups in ``AppConfig.navigation``; groups of one title are merged, sorted by ``place``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.http import HttpRequest
from django.urls import reverse_lazy


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of the side bar: a model's list (``app.model``), or a page by the name of its URL."""

    title: str
    icon: str
    target: str

    def to_theme(self) -> dict[str, Any]:
        """Return the entry as the theme expects it; it is hidden from users who may not view the model."""
        app, _, model = self.target.partition(".")
        if not model:
            return {"title": self.title, "icon": self.icon, "link": reverse_lazy(self.target)}
        return {
            "title": self.title,
            "icon": self.icon,
            "link": reverse_lazy(f"admin:{app}_{model}_changelist"),
            "permission": MayView(f"{app}.view_{model}"),
        }


@dataclass(frozen=True, slots=True)
class Group:
    """Links under a title ("" for none); groups are sorted by ``place``."""

    place: int
    title: str
    links: Sequence[Link]


class MayView:
    """Whether a user may view a model's pages."""

    def __init__(self, permission: str) -> None:
        self.permission = permission

    def __call__(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm(self.permission))


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the groups of all applications as the theme expects them."""
    groups: list[Group] = [group for app in apps.get_app_configs() for group in getattr(app, "navigation", ())]
    shown: dict[str, dict[str, Any]] = {}
    for group in sorted(groups, key=lambda one: one.place):
        entry = shown.setdefault(group.title, {"items": []} | ({"title": group.title} if group.title else {}))
        entry["items"] += [link.to_theme() for link in group.links]
    return list(shown.values())
