"""The addresses of the worker protocol."""

from __future__ import annotations

from django.urls import path

from webadmin.schedule.api import PollView

urlpatterns = [path("jobs/poll", PollView.as_view(), name="poll-jobs")]
