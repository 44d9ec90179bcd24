"""The URLs of profile blocks, their policies, quarantine and deletion."""

from __future__ import annotations

from django.urls import path

from webadmin.base.actions.api import action_path
from webadmin.lanes.profiles.actions.blocks import DISCARD_LETTERS, RELEASE, RETRY_LETTERS
from webadmin.lanes.profiles.actions.deletion import APPLY_RETENTION, CHANGE_HOLD, SET_RETENTION
from webadmin.lanes.profiles.api.blocks import AddBlocksView, QueryBlocksView
from webadmin.lanes.profiles.api.deletion import DeleteRequestsView
from webadmin.lanes.profiles.api.policies import LevelPoliciesView
from webadmin.lanes.profiles.api.quarantine import QuarantineView

urlpatterns = [
    path("blocks", AddBlocksView.as_view(), name="add-blocks"),
    path("blocks/query", QueryBlocksView.as_view(), name="query-blocks"),
    path("operations/level-policies", LevelPoliciesView.as_view(), name="level-policies"),
    path("operations/quarantine", QuarantineView.as_view(), name="quarantine"),
    path("operations/delete-requests", DeleteRequestsView.as_view(), name="delete-requests"),
    action_path(APPLY_RETENTION, "operations/retention"),
    action_path(SET_RETENTION, "operations/retention-rules"),
    action_path(CHANGE_HOLD, "operations/holds"),
    *map(action_path, (RELEASE, RETRY_LETTERS, DISCARD_LETTERS)),
]
