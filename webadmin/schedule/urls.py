"""URLs of the worker protocol and of operators' actions."""

from __future__ import annotations

from django.urls import path

from webadmin.base.actions.api import action_path
from webadmin.schedule.actions import CANCEL, PIN, REQUEUE, RESET_FAILURES, RESUME, RETURN_BLOCKS, UNPIN
from webadmin.schedule.api import operations
from webadmin.schedule.api.worker import PollView

urlpatterns = [
    path("jobs/poll", PollView.as_view(), name="poll-jobs"),
    path("operations/limits", operations.LimitsView.as_view(), name="limits"),
    path("operations/pauses", operations.PausesView.as_view(), name="pauses"),
    path("operations/parked", operations.ParkedView.as_view(), name="parked"),
    path("operations/isolation", operations.IsolationView.as_view(), name="isolation"),
    path("operations/breakages", operations.BreakagesView.as_view(), name="breakages"),
    *map(action_path, (REQUEUE, CANCEL, RETURN_BLOCKS, RESET_FAILURES, PIN, UNPIN, RESUME)),
]
