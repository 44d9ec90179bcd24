"""The lane of text files in the web application: its app, URLs and metrics."""

from __future__ import annotations

from engine.core.metrics import Metric
from webadmin.base.lane_manifest import WebManifest

MANIFEST = WebManifest(
    name="echo",
    apps=("tests.lanes.echo.webadmin",),
    urls=(("api/v1/", "tests.lanes.echo.webadmin.urls"),),
    metrics=(Metric("lithify_echo_texts", "gauge", ("tenant", "folder", "state"), "text files by state"),),
)
