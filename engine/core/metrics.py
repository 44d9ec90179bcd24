"""Every metric of every process: its name, kind, labels, meaning, and which process shows it.

The page docs/reference/metrics.md and what the processes really show are held to this list by tests. Counters are
counted where the thing happens; what is read from kept sums is a gauge.
"""

from __future__ import annotations

from dataclasses import dataclass

SECONDS_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; a counter's name ends in ``_total``, a time's in ``_seconds``."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


_PLACE = ("lane", "level")
_BUCKET_TENANT = ("bucket", "tenant")
_REPOSITORY = ("tenant", "repository")
_TABLE = ("tenant", "table")

SERVICE_METRICS = (
    Metric("lithify_build_info", "gauge", ("version",), "1, with the version of the service"),
    Metric("lithify_healthy", "gauge", (), "1 while the progress check is well"),
    Metric("lithify_merging_broken", "gauge", (), "1 while over a fifth of recent jobs fail with one error class"),
    Metric(
        "lithify_quarantine_stopped",
        "gauge",
        (),
        "1 while quarantine waits for a decision somewhere: too many sources are bad",
    ),
    Metric("lithify_stalled_seconds", "gauge", (), "for how long work was due and nothing was completed"),
    Metric("lithify_last_completion_age_seconds", "gauge", (), "since the last completed job; absent before the first"),
    Metric("lithify_counting_age_seconds", "gauge", (), "since the log was last counted; absent before the first time"),
    Metric("lithify_backlog_blocks", "gauge", (), "blocks that wait in queues or jobs, parked ones left out"),
    Metric("lithify_backlog_bytes", "gauge", (), "their bytes"),
    Metric("lithify_backlog_due_blocks", "gauge", (), "those of them that could be merged now"),
    Metric("lithify_backlog_work_seconds", "gauge", (), "time one job slot needs for the backlog: scale workers by it"),
    Metric(
        "lithify_tenant_backlog_blocks", "gauge", ("tenant", "level"), "the backlog of the 200 largest; '' segments"
    ),
    Metric("lithify_jobs", "gauge", ("level", "state"), "jobs that are not done: waiting, blocked, leased, parked"),
    Metric("lithify_jobs_failing", "gauge", ("level",), "jobs of the schedule that have failed before"),
    Metric("lithify_jobs_expired", "gauge", (), "leased jobs whose lease is over"),
    Metric("lithify_jobs_limit", "gauge", (), "queue_max: live jobs at most; 0 without limit"),
    Metric("lithify_jobs_live", "gauge", (), "jobs that count against the limit"),
    Metric("lithify_jobs_added_total", "counter", _PLACE, "jobs planned"),
    Metric("lithify_jobs_assigned_total", "counter", _PLACE, "assignments, each with a token of its own"),
    Metric("lithify_jobs_reassigned_total", "counter", _PLACE, "assignments of jobs that had a token before"),
    Metric("lithify_jobs_completed_total", "counter", _PLACE, "jobs whose results replaced their sources"),
    Metric("lithify_jobs_evicted_total", "counter", _PLACE, "jobs parked by the schedule"),
    Metric("lithify_runs_ended_total", "counter", (*_PLACE, "outcome"), "runs that ended without a result, by outcome"),
    Metric("lithify_blocks_added_total", "counter", _PLACE, "blocks made live: registered, or results of merges"),
    Metric("lithify_blocks_merged_total", "counter", _PLACE, "sources of completed jobs"),
    Metric("lithify_blocks_dropped_total", "counter", _PLACE, "blocks dropped unmerged, by retention or on request"),
    Metric("lithify_bytes_merged_total", "counter", _PLACE, "their bytes"),
    Metric(
        "lithify_compaction_wait_seconds_total",
        "counter",
        _PLACE,
        "time from a job's first source to its completion, added up: by completed jobs, the time to compaction",
    ),
    Metric("lithify_blocks_repeated_total", "counter", ("kind",), "blocks registered again: same, differing"),
    Metric("lithify_blocks_refused_total", "counter", ("code",), "registrations refused, by reason"),
    Metric(
        "lithify_pushed_profiles_total", "counter", ("tenant", "outcome"), "pushed profiles: accepted, or why refused"
    ),
    Metric("lithify_pushed_bytes_total", "counter", ("tenant",), "their uncompressed bytes, of those accepted"),
    Metric("lithify_requests_refused_total", "counter", ("code",), "requests refused, and reports with forged tokens"),
    Metric("lithify_queues", "gauge", ("level",), "level queues that hold blocks"),
    Metric("lithify_queues_ready", "gauge", ("level",), "those of which a job could be made now"),
    Metric("lithify_queue_blocks", "gauge", ("level",), "queued blocks"),
    Metric("lithify_queue_bytes", "gauge", ("level",), "their bytes"),
    Metric("lithify_queue_oldest_age_seconds", "gauge", ("level",), "age of the oldest queued block, command time"),
    Metric("lithify_workers", "gauge", ("state",), "workers: polling, silent"),
    Metric("lithify_capacity_offered", "gauge", (), "free job slots that polling workers offered last"),
    Metric("lithify_paused_scopes", "gauge", (), "pauses and drains in force"),
    Metric("lithify_credentials_expiring", "gauge", (), "credentials that have expired, or expire within 14 days"),
    Metric("lithify_quarantined_blocks", "gauge", ("cause",), "blocks in quarantine: damaged, missing"),
    Metric("lithify_tombstones", "gauge", ("state",), "replaced objects not deleted yet: waiting, due"),
    Metric("lithify_tombstone_oldest_due_seconds", "gauge", (), "since when the oldest due object could be deleted"),
    Metric("lithify_objects_deleted_total", "counter", ("outcome",), "tries to delete objects: deleted, failed"),
    Metric("lithify_delete_requests", "gauge", ("state",), "delete requests not done yet: in_time, late"),
    Metric("lithify_dead_letters", "gauge", (), "dead letters that wait for recovery"),
    Metric("lithify_dead_letter_oldest_seconds", "gauge", (), "age of the oldest of them"),
    Metric(
        "lithify_dead_letter_attempts_total",
        "counter",
        ("status",),
        "tries to recover dead letters: recovered, empty, kept, stray",
    ),
    Metric(
        "lithify_swept_total",
        "counter",
        ("what",),
        "ledger rows, lineage records, scratch objects and uploads swept away",
    ),
    Metric(
        "lithify_tsdb_remaining_compactions",
        "gauge",
        _BUCKET_TENANT,
        "compactions until only time or new blocks give more to do, of the 200 furthest behind",
    ),
    Metric("lithify_tsdb_running_jobs", "gauge", _BUCKET_TENANT, "jobs that merge Prometheus blocks now"),
    Metric("lithify_tsdb_waiting_jobs", "gauge", _BUCKET_TENANT, "jobs over Prometheus blocks that wait for a worker"),
    Metric("lithify_tsdb_parked_jobs", "gauge", _BUCKET_TENANT, "jobs over Prometheus blocks that are parked"),
    Metric(
        "lithify_tsdb_waiting_blocks", "gauge", _BUCKET_TENANT, "Prometheus blocks that a compaction is still to take"
    ),
    Metric("lithify_tsdb_too_large_groups", "gauge", _BUCKET_TENANT, "groups that are too large to be merged uncut"),
    Metric(
        "lithify_tsdb_refused",
        "gauge",
        _BUCKET_TENANT,
        "1 while nothing of the tenant is planned, a foreign compactor for example",
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
        "Prometheus blocks by state, and those kept out: no_compact, quarantined; bad and partial (unfinished uploads) "
        "could not be taken in",
    ),
    Metric(
        "lithify_tsdb_index_written_timestamp_seconds",
        "gauge",
        _BUCKET_TENANT,
        "when the bucket index of the tenant was last written, unix time",
    ),
    Metric(
        "lithify_tsdb_oldest_group_age_seconds", "gauge", _BUCKET_TENANT, "since when the oldest unfinished group waits"
    ),
    Metric("lithify_tsdb_outbox_steps", "gauge", ("bucket",), "steps that the bucket is still to be told"),
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
        "bytes of a table's chunks that are worth compacting, of the 200 tables with most",
    ),
    Metric(
        "lithify_tables_chunks",
        "gauge",
        (*_TABLE, "state"),
        "chunks of a table: unstable, deferred, quarantined (after failures), "
        "stuck (unstable, and of no task for 10 minutes)",
    ),
    Metric("lithify_tables_tasks", "gauge", (*_TABLE, "state"), "tasks of a table: running, waiting, blocked, parked"),
    Metric("lithify_tables_bad_files", "gauge", _TABLE, "files of a table that are kept out of it"),
    Metric("lithify_tables_unpublished", "gauge", _TABLE, "changes of a table that its readers do not see yet"),
    Metric("lithify_tables_churning_chunks", "gauge", _TABLE, "chunks of a table rewritten at least 4 times in 7 days"),
    Metric(
        "lithify_tables_refused", "gauge", _TABLE, "1 while nothing of a table is planned, or its manifest not written"
    ),
    Metric(
        "lithify_catalog_sealed_tokens",
        "gauge",
        _REPOSITORY,
        "sealed tokens of a repository's branches, of the 200 repositories with most",
    ),
    Metric("lithify_catalog_tombstones", "gauge", _REPOSITORY, "tombstones since branches were folded last, about"),
    Metric("lithify_catalog_oldest_sealed_seconds", "gauge", _REPOSITORY, "age of the oldest sealed token"),
    Metric(
        "lithify_catalog_wanted_branches",
        "gauge",
        _REPOSITORY,
        "branches worth compacting, and not being compacted",
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
        "the longest compaction published within that hour",
    ),
    Metric("lithify_catalog_compaction_bytes", "gauge", _REPOSITORY, "bytes that compactions wrote within that hour"),
    Metric("lithify_catalog_orphans", "gauge", _REPOSITORY, "files that nothing reaches and that are not deleted yet"),
    Metric("lithify_catalog_retired_tokens", "gauge", _REPOSITORY, "tokens whose rows are to be deleted"),
    Metric("lithify_catalog_collection_failed", "gauge", _REPOSITORY, "1 while nothing that is unreached is deleted"),
    Metric("lithify_command_index", "gauge", (), "last entry of the command log"),
    Metric("lithify_command_time_lag_seconds", "gauge", (), "how far command time is behind the database's clock"),
)
"""Shown by every web process at ``/metrics``: read from the database, so that all web processes say the same."""

NODE_METRICS = (
    Metric("lithify_node_polls_total", "counter", ("outcome",), "polls of this node: answered, failed"),
    Metric("lithify_node_jobs_total", "counter", ("outcome",), "ended runs: finished, stopped, or failed"),
    Metric("lithify_node_batch_seconds", "histogram", (), "time from a batch's start to its end"),
    Metric("lithify_node_leases_lost_total", "counter", (), "leases that were not granted or renewed in time"),
    Metric("lithify_node_running_jobs", "gauge", (), "jobs this node works on"),
    Metric("lithify_node_capacity", "gauge", (), "further jobs that could start now"),
    Metric("lithify_node_ready", "gauge", (), "1 once the merger has proved itself"),
)
"""Shown by a compactor node at ``METRICS_PORT``."""

CONTROL_METRICS = (
    Metric("lithify_control_tasks_total", "counter", ("task", "outcome"), "control tasks run: succeeded, failed"),
    Metric("lithify_control_task_seconds", "histogram", ("task",), "time a control task took"),
)
"""Shown by a control worker at ``METRICS_PORT``."""

BEAT_METRICS = (Metric("lithify_beat_tasks_sent_total", "counter", ("task",), "tasks that beat has sent"),)
"""Shown by beat at ``METRICS_PORT``."""

WRITER_METRICS = (
    Metric("lithify_writer_pushes_total", "counter", ("code",), "pushes by answer: ok, or why they were not taken"),
    Metric("lithify_writer_profiles_total", "counter", (), "profiles of the pushes that were gathered"),
    Metric("lithify_writer_received_bytes_total", "counter", (), "bytes of these pushes"),
    Metric("lithify_writer_segments_total", "counter", ("outcome",), "segments: indexed, dead_letter, refused, failed"),
    Metric("lithify_writer_segment_bytes_total", "counter", (), "bytes of these segments"),
    Metric("lithify_writer_push_seconds", "histogram", (), "time from a push to its answer"),
    Metric("lithify_writer_flush_seconds", "histogram", (), "time from a flush's first push to its last answer"),
    Metric("lithify_writer_held_bytes", "gauge", (), "bytes of pushes that are not answered yet"),
    Metric("lithify_writer_index_away", "gauge", (), "1 while segments get dead letters because the index is away"),
    Metric("lithify_writer_registered", "gauge", (), "1 while the registry knows this instance"),
)
"""Shown by a segment writer at its own ``/metrics``."""
