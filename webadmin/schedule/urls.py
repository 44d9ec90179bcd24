"""URLs of the worker protocol and of operators' actions."""

from __future__ import annotations

from django.urls import path

from webadmin.schedule.api import operations
from webadmin.schedule.api.worker import PollView

urlpatterns = [
    path("jobs/poll", PollView.as_view(), name="poll-jobs"),
    path("operations/limits", operations.LimitsView.as_view(), name="limits"),
    path("operations/pauses", operations.PausesView.as_view(), name="pauses"),
    path("operations/resume", operations.ResumeView.as_view(), name="resume"),
    path("operations/parked", operations.ParkedView.as_view(), name="parked"),
    path("operations/isolation", operations.IsolationView.as_view(), name="isolation"),
    path("operations/breakages", operations.BreakagesView.as_view(), name="breakages"),
    path("operations/requeue", operations.RequeueView.as_view(), name="requeue"),
    path("operations/cancel", operations.CancelView.as_view(), name="cancel"),
    path("operations/give-blocks-back", operations.GiveBlocksBackView.as_view(), name="give-blocks-back"),
    path("operations/reset-failures", operations.ResetFailuresView.as_view(), name="reset-failures"),
    path("operations/pin", operations.PinView.as_view(), name="pin"),
    path("operations/unpin", operations.UnpinView.as_view(), name="unpin"),
]
