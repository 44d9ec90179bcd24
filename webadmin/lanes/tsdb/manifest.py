"""The lane of Prometheus blocks in the web application: its apps, URLs and metrics."""

from __future__ import annotations

from engine.core.metrics import Metric
from webadmin.base.lane_manifest import WebManifest

BUCKET_TENANT = ("bucket", "tenant")

MANIFEST = WebManifest(
    name="tsdb",
    apps=("webadmin.lanes.tsdb",),
    urls=(("api/v1/", "webadmin.lanes.tsdb.urls"),),
    metrics=(
        Metric(
            "lithify_tsdb_remaining_compactions",
            "gauge",
            BUCKET_TENANT,
            "compactions of the present blocks that remain to be done, for the 200 tenants with most",
        ),
        Metric("lithify_tsdb_running_jobs", "gauge", BUCKET_TENANT, "running jobs that merge Prometheus blocks"),
        Metric(
            "lithify_tsdb_waiting_jobs", "gauge", BUCKET_TENANT, "jobs over Prometheus blocks that wait for a worker"
        ),
        Metric("lithify_tsdb_parked_jobs", "gauge", BUCKET_TENANT, "parked jobs over Prometheus blocks"),
        Metric("lithify_tsdb_waiting_blocks", "gauge", BUCKET_TENANT, "Prometheus blocks that remain to be compacted"),
        Metric(
            "lithify_tsdb_too_large_groups",
            "gauge",
            BUCKET_TENANT,
            "groups that are too large to be merged without partitions",
        ),
        Metric(
            "lithify_tsdb_refused",
            "gauge",
            BUCKET_TENANT,
            "1 while planning for the tenant is refused, because of a foreign compactor for example",
        ),
        Metric(
            "lithify_tsdb_catching_up_seconds",
            "gauge",
            BUCKET_TENANT,
            "expected time to catch up, at the rate of the last hour",
        ),
        Metric(
            "lithify_tsdb_blocks",
            "gauge",
            ("bucket", "tenant", "state"),
            "Prometheus blocks by state; no_compact and quarantined blocks are excluded from compaction, bad and "
            "partial ones (unfinished uploads) could not be read",
        ),
        Metric(
            "lithify_tsdb_index_written_timestamp_seconds",
            "gauge",
            BUCKET_TENANT,
            "Unix time at which the tenant's bucket index was last written",
        ),
        Metric(
            "lithify_tsdb_oldest_group_age_seconds",
            "gauge",
            BUCKET_TENANT,
            "time for which the oldest unfinished group has waited",
        ),
        Metric("lithify_tsdb_outbox_steps", "gauge", ("bucket",), "steps that remain to be written to the bucket"),
        Metric(
            "lithify_tsdb_published_parts",
            "gauge",
            ("bucket",),
            "blocks that are parts of a group, in a bucket whose readers do not know parts",
        ),
        Metric("lithify_tsdb_scan_age_seconds", "gauge", ("bucket",), "since the last scan of the bucket"),
    ),
)
