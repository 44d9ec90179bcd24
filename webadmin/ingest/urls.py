"""URLs of the ingest endpoints, which clients fix, and of the push limits API."""

from __future__ import annotations

from django.urls import path, re_path

from webadmin.base.connect import View
from webadmin.ingest.ingest_api import ingest
from webadmin.ingest.otlp_api import export
from webadmin.ingest.push_api import push
from webadmin.ingest.push_limits_api import PushLimitsView

PUSH_METHOD = "push.v1.PusherService/Push"
INGEST_VIEWS: dict[str, View] = {
    PUSH_METHOD: push,
    "ingest": ingest,
    "pyroscope/ingest": ingest,
    "v1development/profiles": export,
    "opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export": export,
}
"""Views by path. Any prefix is permitted before the path of Push, because clients configure a base address."""

urlpatterns = [
    path("api/v1/operations/push-limits", PushLimitsView.as_view(), name="push-limits"),
    re_path(r"^(?:.+/)?push\.v1\.PusherService/Push$", push, name="push"),
    *(path(address, view) for address, view in INGEST_VIEWS.items() if address != PUSH_METHOD),
]
