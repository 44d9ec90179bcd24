"""The lane of tables in the web application: its apps, URLs and metrics."""

from __future__ import annotations

from engine.core.metrics import Metric
from webadmin.base.lane_manifest import WebManifest

TABLE = ("tenant", "table")

MANIFEST = WebManifest(
    name="tables",
    apps=("webadmin.lanes.tables",),
    urls=(
        ("api/v1/", "webadmin.lanes.tables.urls"),
        ("admin/timeline-page/", "webadmin.lanes.tables.timeline_page.urls"),
    ),
    metrics=(
        Metric(
            "lithify_tables_to_rewrite_bytes",
            "gauge",
            TABLE,
            "bytes of a table's chunks that are worth compacting, for the 200 tables with most",
        ),
        Metric(
            "lithify_tables_chunks",
            "gauge",
            (*TABLE, "state"),
            "chunks of a table: unstable, deferred, quarantined (after failures), "
            "stuck (unstable, and of no task for 10 minutes)",
        ),
        Metric(
            "lithify_tables_tasks",
            "gauge",
            (*TABLE, "state"),
            "tasks of a table by state: running, waiting, blocked, parked",
        ),
        Metric(
            "lithify_tables_bad_files", "gauge", TABLE, "files that are excluded from a table because they are invalid"
        ),
        Metric("lithify_tables_unpublished", "gauge", TABLE, "changes of a table that are not visible to readers yet"),
        Metric(
            "lithify_tables_churning_chunks", "gauge", TABLE, "chunks of a table rewritten at least 4 times in 7 days"
        ),
        Metric(
            "lithify_tables_refused",
            "gauge",
            TABLE,
            "1 while planning for a table, or writing its manifest, is refused",
        ),
    ),
    enum_names={
        "ChunkOverrideEnum": "webadmin.lanes.tables.api.serializers.KINDS",
        "RegistrationModeEnum": "webadmin.lanes.tables.registration_actions.MODES",
    },
)
