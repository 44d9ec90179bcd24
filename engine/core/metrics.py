"""The metrics of every process: name, kind, labels, meaning, and the process that exposes them.

Tests compare docs/reference/metrics.md and the exposed metrics with this list. Counters are incremented where the event
happens; values read from stored sums are gauges.
"""

from __future__ import annotations

from dataclasses import dataclass

SECONDS_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; the name of a counter ends in ``_total``, that of a duration in ``_seconds``."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


_LANE_LEVEL = ("lane", "level")
_BUCKET_TENANT = ("bucket", "tenant")
_REPOSITORY = ("tenant", "repository")
_TABLE = ("tenant", "table")

SERVICE_METRICS = (
    Metric("lithify_build_info", "gauge", ("version",), "always 1; the label is the version of the service"),
    Metric("lithify_healthy", "gauge", (), "1 while the progress check succeeds"),
    Metric("lithify_merging_broken", "gauge", (), "1 while more than a fifth of recent jobs fail with one error class"),
    Metric(
        "lithify_quarantine_stopped",
        "gauge",
        (),
        "1 while quarantine waits for an operator because too many sources are bad",
    ),
    Metric("lithify_stalled_seconds", "gauge", (), "time for which work was due and no job was completed"),
    Metric(
        "lithify_last_completion_age_seconds", "gauge", (), "time since the last completed job; absent before the first"
    ),
    Metric(
        "lithify_counting_age_seconds",
        "gauge",
        (),
        "time since the command log was last counted; absent before the first time",
    ),
    Metric("lithify_backlog_blocks", "gauge", (), "blocks that wait in queues or jobs, without those of parked jobs"),
    Metric("lithify_backlog_bytes", "gauge", (), "bytes of the blocks in the backlog"),
    Metric("lithify_backlog_due_blocks", "gauge", (), "blocks of the backlog that could be merged now"),
    Metric(
        "lithify_backlog_work_seconds",
        "gauge",
        (),
        "time that one job slot needs for the backlog; a basis for scaling workers",
    ),
    Metric(
        "lithify_tenant_backlog_blocks",
        "gauge",
        ("tenant", "level"),
        "blocks in the backlog of the 200 largest tenants; level '' is segments",
    ),
    Metric(
        "lithify_jobs",
        "gauge",
        ("level", "state"),
        "jobs that are not done, by state: waiting, blocked, leased, parked",
    ),
    Metric("lithify_jobs_failing", "gauge", ("level",), "jobs of the schedule with at least one failed attempt"),
    Metric("lithify_jobs_expired", "gauge", (), "leased jobs whose lease has expired"),
    Metric("lithify_jobs_limit", "gauge", (), "maximum number of live jobs (queue_max); 0 is unlimited"),
    Metric("lithify_jobs_live", "gauge", (), "jobs that count against the limit"),
    Metric("lithify_jobs_added_total", "counter", _LANE_LEVEL, "jobs planned"),
    Metric("lithify_jobs_assigned_total", "counter", _LANE_LEVEL, "assignments, each with its own fencing token"),
    Metric("lithify_jobs_reassigned_total", "counter", _LANE_LEVEL, "assignments of jobs that were assigned before"),
    Metric("lithify_jobs_completed_total", "counter", _LANE_LEVEL, "jobs whose results replaced their sources"),
    Metric("lithify_jobs_evicted_total", "counter", _LANE_LEVEL, "jobs parked by the schedule"),
    Metric(
        "lithify_runs_ended_total", "counter", (*_LANE_LEVEL, "outcome"), "runs that ended without a result, by outcome"
    ),
    Metric("lithify_blocks_added_total", "counter", _LANE_LEVEL, "blocks made live: registered, or results of merges"),
    Metric("lithify_blocks_merged_total", "counter", _LANE_LEVEL, "sources of completed jobs"),
    Metric(
        "lithify_blocks_dropped_total",
        "counter",
        _LANE_LEVEL,
        "blocks dropped without a merge, by retention or on request",
    ),
    Metric("lithify_bytes_merged_total", "counter", _LANE_LEVEL, "bytes of the sources of completed jobs"),
    Metric(
        "lithify_compaction_wait_seconds_total",
        "counter",
        _LANE_LEVEL,
        "sum of the times from a job's first source to its completion; per completed job, the time to compaction",
    ),
    Metric(
        "lithify_blocks_repeated_total",
        "counter",
        ("kind",),
        "blocks registered more than once, by kind: same, differing",
    ),
    Metric("lithify_blocks_refused_total", "counter", ("code",), "rejected registrations of blocks, by reason"),
    Metric(
        "lithify_pushed_profiles_total",
        "counter",
        ("tenant", "outcome"),
        "pushed profiles by outcome: accepted, or the reason for the rejection",
    ),
    Metric("lithify_pushed_bytes_total", "counter", ("tenant",), "uncompressed bytes of accepted profiles"),
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
    Metric("lithify_queue_oldest_age_seconds", "gauge", ("level",), "age of the oldest queued block, in command time"),
    Metric("lithify_workers", "gauge", ("state",), "workers by state: polling, silent"),
    Metric("lithify_capacity_offered", "gauge", (), "free job slots that polling workers reported last"),
    Metric("lithify_paused_scopes", "gauge", (), "pauses and drains in force"),
    Metric("lithify_credentials_expiring", "gauge", (), "credentials that have expired, or expire within 14 days"),
    Metric("lithify_quarantined_blocks", "gauge", ("cause",), "blocks in quarantine, by cause: damaged, missing"),
    Metric(
        "lithify_tombstones", "gauge", ("state",), "replaced objects that are not deleted yet, by state: waiting, due"
    ),
    Metric(
        "lithify_tombstone_oldest_due_seconds", "gauge", (), "time since the oldest due object could have been deleted"
    ),
    Metric(
        "lithify_objects_deleted_total",
        "counter",
        ("outcome",),
        "attempts to delete objects, by outcome: deleted, failed",
    ),
    Metric(
        "lithify_delete_requests", "gauge", ("state",), "delete requests that are not done yet, by state: in_time, late"
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
    Metric(
        "lithify_tsdb_remaining_compactions",
        "gauge",
        _BUCKET_TENANT,
        "compactions of the present blocks that remain to be done, for the 200 tenants with most",
    ),
    Metric("lithify_tsdb_running_jobs", "gauge", _BUCKET_TENANT, "running jobs that merge Prometheus blocks"),
    Metric("lithify_tsdb_waiting_jobs", "gauge", _BUCKET_TENANT, "jobs over Prometheus blocks that wait for a worker"),
    Metric("lithify_tsdb_parked_jobs", "gauge", _BUCKET_TENANT, "parked jobs over Prometheus blocks"),
    Metric("lithify_tsdb_waiting_blocks", "gauge", _BUCKET_TENANT, "Prometheus blocks that remain to be compacted"),
    Metric(
        "lithify_tsdb_too_large_groups",
        "gauge",
        _BUCKET_TENANT,
        "groups that are too large to be merged without partitions",
    ),
    Metric(
        "lithify_tsdb_refused",
        "gauge",
        _BUCKET_TENANT,
        "1 while planning for the tenant is refused, because of a foreign compactor for example",
    ),
    Metric(
        "lithify_tsdb_catching_up_seconds",
        "gauge",
        _BUCKET_TENANT,
        "expected time to catch up, at the rate of the last hour",
    ),
    Metric(
        "lithify_tsdb_blocks",
        "gauge",
        ("bucket", "tenant", "state"),
        "Prometheus blocks by state; no_compact and quarantined blocks are excluded from compaction, bad and partial "
        "ones (unfinished uploads) could not be read",
    ),
    Metric(
        "lithify_tsdb_index_written_timestamp_seconds",
        "gauge",
        _BUCKET_TENANT,
        "Unix time at which the tenant's bucket index was last written",
    ),
    Metric(
        "lithify_tsdb_oldest_group_age_seconds",
        "gauge",
        _BUCKET_TENANT,
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
    Metric(
        "lithify_tables_to_rewrite_bytes",
        "gauge",
        _TABLE,
        "bytes of a table's chunks that are worth compacting, for the 200 tables with most",
    ),
    Metric(
        "lithify_tables_chunks",
        "gauge",
        (*_TABLE, "state"),
        "chunks of a table: unstable, deferred, quarantined (after failures), "
        "stuck (unstable, and of no task for 10 minutes)",
    ),
    Metric(
        "lithify_tables_tasks",
        "gauge",
        (*_TABLE, "state"),
        "tasks of a table by state: running, waiting, blocked, parked",
    ),
    Metric(
        "lithify_tables_bad_files", "gauge", _TABLE, "files that are excluded from a table because they are invalid"
    ),
    Metric("lithify_tables_unpublished", "gauge", _TABLE, "changes of a table that are not visible to readers yet"),
    Metric("lithify_tables_churning_chunks", "gauge", _TABLE, "chunks of a table rewritten at least 4 times in 7 days"),
    Metric(
        "lithify_tables_refused", "gauge", _TABLE, "1 while planning for a table, or writing its manifest, is refused"
    ),
    Metric(
        "lithify_catalog_sealed_tokens",
        "gauge",
        _REPOSITORY,
        "sealed tokens of a repository's branches, for the 200 repositories with most",
    ),
    Metric(
        "lithify_catalog_tombstones",
        "gauge",
        _REPOSITORY,
        "approximate number of tombstones written since the branches were last compacted",
    ),
    Metric("lithify_catalog_oldest_sealed_seconds", "gauge", _REPOSITORY, "age of the oldest sealed token"),
    Metric(
        "lithify_catalog_wanted_branches",
        "gauge",
        _REPOSITORY,
        "branches that are worth compacting and are not being compacted",
    ),
    Metric(
        "lithify_catalog_compactions",
        "gauge",
        (*_REPOSITORY, "state"),
        "compactions that ended within the last hour: published, lost (to a commit, say), "
        "failed (or their job is parked), ended",
    ),
    Metric(
        "lithify_catalog_compaction_seconds",
        "gauge",
        _REPOSITORY,
        "duration of the longest compaction published within the last hour",
    ),
    Metric(
        "lithify_catalog_compaction_bytes", "gauge", _REPOSITORY, "bytes that compactions wrote within the last hour"
    ),
    Metric("lithify_catalog_orphans", "gauge", _REPOSITORY, "unreachable files that are not deleted yet"),
    Metric("lithify_catalog_retired_tokens", "gauge", _REPOSITORY, "tokens whose rows remain to be deleted"),
    Metric(
        "lithify_catalog_collection_failed",
        "gauge",
        _REPOSITORY,
        "1 while unreachable files are not deleted because collection fails",
    ),
    Metric("lithify_command_index", "gauge", (), "index of the last entry of the command log"),
    Metric("lithify_command_time_lag_seconds", "gauge", (), "lag of command time behind the database's clock"),
)
"""Exposed by every web process at ``/metrics``; read from the database, so that all web processes report the same."""

NODE_METRICS = (
    Metric("lithify_node_polls_total", "counter", ("outcome",), "polls of this node by outcome: answered, failed"),
    Metric("lithify_node_jobs_total", "counter", ("outcome",), "ended runs by outcome: finished, stopped, failed"),
    Metric("lithify_node_batch_seconds", "histogram", (), "duration of a batch"),
    Metric("lithify_node_leases_lost_total", "counter", (), "leases that were not granted or renewed in time"),
    Metric("lithify_node_running_jobs", "gauge", (), "jobs that run on this node"),
    Metric("lithify_node_capacity", "gauge", (), "additional jobs that could start now"),
    Metric("lithify_node_ready", "gauge", (), "1 once the self-test of the merger has succeeded"),
)
"""Exposed by a compactor node at ``METRICS_PORT``."""

CONTROL_METRICS = (
    Metric(
        "lithify_control_tasks_total", "counter", ("task", "outcome"), "control tasks by outcome: succeeded, failed"
    ),
    Metric("lithify_control_task_seconds", "histogram", ("task",), "duration of a control task"),
)
"""Exposed by a control worker at ``METRICS_PORT``."""

BEAT_METRICS = (Metric("lithify_beat_tasks_sent_total", "counter", ("task",), "tasks sent by beat"),)
"""Exposed by beat at ``METRICS_PORT``."""

WRITER_METRICS = (
    Metric(
        "lithify_writer_pushes_total",
        "counter",
        ("code",),
        "answered pushes by code: ok, or the reason for the rejection",
    ),
    Metric("lithify_writer_profiles_total", "counter", (), "profiles of accepted pushes"),
    Metric("lithify_writer_received_bytes_total", "counter", (), "bytes of accepted pushes"),
    Metric(
        "lithify_writer_segments_total",
        "counter",
        ("outcome",),
        "segments by outcome: indexed, dead_letter, refused, failed",
    ),
    Metric("lithify_writer_segment_bytes_total", "counter", (), "bytes of written segments"),
    Metric("lithify_writer_push_seconds", "histogram", (), "time from a push to its answer"),
    Metric("lithify_writer_flush_seconds", "histogram", (), "time from the first push of a flush to its last answer"),
    Metric("lithify_writer_held_bytes", "gauge", (), "bytes of pushes that are not answered yet"),
    Metric(
        "lithify_writer_index_away",
        "gauge",
        (),
        "1 while segments are written as dead letters because the index is unavailable",
    ),
    Metric("lithify_writer_registered", "gauge", (), "1 while this instance is registered"),
)
"""Exposed by a segment writer at its own ``/metrics``."""
