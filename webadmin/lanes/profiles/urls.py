"""The URLs of profile blocks, their policies, quarantine and deletion."""

from __future__ import annotations

from django.urls import path

from webadmin.lanes.profiles.api import deletion
from webadmin.lanes.profiles.api.blocks import AddBlocksView, QueryBlocksView
from webadmin.lanes.profiles.api.policies import LevelPoliciesView
from webadmin.lanes.profiles.api.quarantine import QuarantineView, ReleaseView

urlpatterns = [
    path("blocks", AddBlocksView.as_view(), name="add-blocks"),
    path("blocks/query", QueryBlocksView.as_view(), name="query-blocks"),
    path("operations/level-policies", LevelPoliciesView.as_view(), name="level-policies"),
    path("operations/quarantine", QuarantineView.as_view(), name="quarantine"),
    path("operations/release", ReleaseView.as_view(), name="release"),
    path("operations/retention", deletion.RetentionView.as_view(), name="retention"),
    path("operations/retention-rules", deletion.RetentionRulesView.as_view(), name="retention-rules"),
    path("operations/holds", deletion.HoldsView.as_view(), name="holds"),
    path("operations/delete-requests", deletion.DeleteRequestsView.as_view(), name="delete-requests"),
]
