"""The metrics of every process: name, kind, labels, meaning, and the process that exposes them.

Those of lanes are in their manifests (``webadmin/lanes``). Tests compare docs/reference/metrics.md and the exposed
metrics with these lists. Counters are incremented where the event
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
        "lithify_pushed_profiles_total",
        "counter",
        ("tenant", "outcome"),
        "pushed profiles by outcome: accepted, or the reason for the rejection",
    ),
    Metric("lithify_pushed_bytes_total", "counter", ("tenant",), "uncompressed bytes of accepted profiles"),
    Metric("lithify_workers", "gauge", ("state",), "workers by state: polling, silent"),
    Metric("lithify_capacity_offered", "gauge", (), "free job slots that polling workers reported last"),
    Metric("lithify_paused_scopes", "gauge", (), "pauses and drains in force"),
    Metric("lithify_credentials_expiring", "gauge", (), "credentials that have expired, or expire within 14 days"),
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
