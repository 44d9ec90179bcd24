"""The lane of profiles in the web application: its apps, URLs and metrics."""

from __future__ import annotations

from engine.core.metrics import Metric
from webadmin.base.lane_manifest import WebManifest

MANIFEST = WebManifest(
    name="profiles",
    apps=("webadmin.lanes.profiles",),
    urls=(("api/v1/", "webadmin.lanes.profiles.urls"),),
    metrics=(
        Metric(
            "lithify_blocks_repeated_total",
            "counter",
            ("kind",),
            "blocks registered more than once, by kind: same, differing",
        ),
        Metric("lithify_blocks_refused_total", "counter", ("code",), "rejected registrations of blocks, by reason"),
        Metric(
            "lithify_requests_refused_total",
            "counter",
            ("code",),
            "rejected requests, and reports with forged tokens, by reason",
        ),
        Metric("lithify_queues", "gauge", ("level",), "level queues with at least one block"),
        Metric("lithify_queues_ready", "gauge", ("level",), "level queues from which a job could be planned now"),
        Metric("lithify_queue_blocks", "gauge", ("level",), "blocks in level queues"),
        Metric("lithify_queue_bytes", "gauge", ("level",), "bytes of the blocks in level queues"),
        Metric(
            "lithify_queue_oldest_age_seconds", "gauge", ("level",), "age of the oldest queued block, in command time"
        ),
        Metric("lithify_quarantined_blocks", "gauge", ("cause",), "blocks in quarantine, by cause: damaged, missing"),
        Metric(
            "lithify_tombstones",
            "gauge",
            ("state",),
            "replaced objects that are not deleted yet, by state: waiting, due",
        ),
        Metric(
            "lithify_tombstone_oldest_due_seconds",
            "gauge",
            (),
            "time since the oldest due object could have been deleted",
        ),
        Metric(
            "lithify_objects_deleted_total",
            "counter",
            ("outcome",),
            "attempts to delete objects, by outcome: deleted, failed",
        ),
        Metric(
            "lithify_delete_requests",
            "gauge",
            ("state",),
            "delete requests that are not done yet, by state: in_time, late",
        ),
        Metric("lithify_dead_letters", "gauge", (), "dead letters that wait for recovery"),
        Metric("lithify_dead_letter_oldest_seconds", "gauge", (), "age of the oldest dead letter"),
        Metric(
            "lithify_dead_letter_attempts_total",
            "counter",
            ("status",),
            "attempts to recover dead letters, by status: recovered, empty, kept, stray",
        ),
        Metric(
            "lithify_swept_total",
            "counter",
            ("what",),
            "removed ledger rows, lineage records, scratch objects and uploads",
        ),
    ),
)
