"""URLs of the API of placement."""

from __future__ import annotations

from django.urls import path

from webadmin.base.actions.api import action_path
from webadmin.placement import placement_api as api
from webadmin.placement.placement_actions import DRAIN, SIZE_RING

urlpatterns = [
    path("placement/rules", api.PlacementRulesView.as_view(), name="placement-rules"),
    path("placement/changes", api.PlacementHistoryView.as_view(), name="placement-changes"),
    path("placement/limits", api.PlacementLimitsView.as_view(), name="placement-limits"),
    path("placement/overrides", api.PlacementOverridesView.as_view(), name="placement-overrides"),
    path("placement/instances", api.PlacementInstancesView.as_view(), name="placement-instances"),
    action_path(DRAIN, "placement/drain"),
    action_path(SIZE_RING, "placement/ring-size"),
    path("placement/what-if", api.WhatIfView.as_view(), name="placement-what-if"),
]
