"""The addresses that profilers send to, which are what senders know, and the one where operators limit them."""

from __future__ import annotations

from django.urls import path, re_path

from webadmin.profiles.ingest_api import ingest
from webadmin.profiles.otlp_api import export
from webadmin.profiles.push_api import push
from webadmin.profiles.push_limits_api import PushLimitsView

urlpatterns = [
    # An address with a path is configured in many a client: whatever stands before the method is theirs.
    re_path(r"^(?:.+/)?push\.v1\.PusherService/Push$", push, name="push"),
    path("api/v1/operations/push-limits", PushLimitsView.as_view(), name="push-limits"),
    path("ingest", ingest, name="ingest"),
    path("pyroscope/ingest", ingest, name="pyroscope-ingest"),
    path("v1development/profiles", export, name="otlp-profiles"),
    path(
        "opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
        export,
        name="otlp-profiles-service",
    ),
]
