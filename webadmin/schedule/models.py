"""The command log, jobs with their attempts, workers, and the limits an operator may change.

Columns named ``…_ms`` are milliseconds: command time, unless the comment states wall time. Command indexes are plain
numbers, not foreign keys: old entries of the log are deleted behind a snapshot while their indexes stay in use.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from engine.schedule.model import HOLDING_STATES, AttemptOutcome, JobState, ParkedKind
from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import TENANT_NAME_MAX, WorkerCredential
from webadmin.base.database.fields import ByteOrderedField

LANE_MAX = 20
JOB_NAME_MAX = 250
EPOCH_MAX = 32
SERVER_MAX = 100


class SingleRow(models.Model):
    """A table with exactly one row, number 1, inserted by a migration."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)

    class Meta:
        abstract = True


class LogHead(SingleRow):
    """The head of the command log; a transaction that appends to the log locks this row.

    ``server`` is the run of the database server that wrote the last command (``columns.server_column``), "" while
    unknown.
    """

    last_index = models.BigIntegerField(default=0)
    command_time_ms = models.BigIntegerField(default=0)
    # The database's clock (wall time) when command_time_ms was set: command time continues from there.
    clock_ms = models.BigIntegerField(default=0)
    # Waiting, blocked and leased jobs, compared with the queue limit without counting rows.
    live_job_count = models.PositiveIntegerField(default=0)
    server = models.CharField(max_length=SERVER_MAX, blank=True, default="")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="log_head_is_one_row")]

    def __str__(self) -> str:
        return f"head at {self.last_index}"


class PositionMark(SingleRow):
    """The epoch of this log, and the last command whose position was, or is being, written to the bucket.

    An epoch names a history: it is created with the first position, and again whenever the log is continued beyond a
    history that may be lost. ``claimed_index`` only grows.
    """

    epoch = models.CharField(max_length=EPOCH_MAX, blank=True, default="")
    claimed_index = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="position_mark_is_one_row")]

    def __str__(self) -> str:
        return f"position claimed up to {self.claimed_index}"


class AheadPosition(models.Model):
    """A position in the bucket that this log does not contain; while there is one, nothing is deleted.

    Times are wall time. ``written_at_ms`` is by the clock of the database that wrote it.
    """

    epoch = ByteOrderedField(max_length=EPOCH_MAX)
    command_index = models.BigIntegerField()
    written_at_ms = models.BigIntegerField()
    found_at_ms = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["epoch"], name="ahead_position_unique")]
        ordering = ["epoch"]

    def __str__(self) -> str:
        return f"command {self.command_index} of epoch {self.epoch}"


class Command(models.Model):
    """One entry of the append-only log. The index of the entry that assigns a job is the job's fencing token."""

    class Kind(models.TextChoices):
        ADD_BLOCKS = "add_blocks", "add blocks"
        IMPORT_BLOCKS = "import_blocks", "import blocks"
        UPDATE_PLAN = "update_plan", "update plan"
        ADVANCE_CLOCK = "advance_clock", "advance clock"
        OPERATE = "operate", "operate"

    index = models.BigAutoField(primary_key=True)
    command_time_ms = models.BigIntegerField()
    wall_time = models.DateTimeField()
    kind = models.CharField(max_length=30, choices=Kind)
    actor = models.CharField(max_length=150)
    format_version = models.PositiveSmallIntegerField(default=1)
    change_set = models.JSONField()

    objects = ConfinedManager()

    class Meta:
        ordering = ["-index"]
        indexes = [models.Index(fields=["wall_time"], name="command_by_wall_time")]

    def __str__(self) -> str:
        return f"{self.index} {self.kind}"


class Worker(models.Model):
    """A compactor node known to the service."""

    name = ByteOrderedField(max_length=100)
    credential = models.ForeignKey(WorkerCredential, on_delete=models.PROTECT, related_name="workers")
    build = models.CharField(max_length=100, blank=True)
    capacity = models.PositiveIntegerField(default=0)
    first_poll_at = models.DateTimeField(auto_now_add=True)
    last_poll_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name"], name="worker_name_unique")]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Job(models.Model):
    """A unit of planned work: the blocks of one tenant, shard and level to merge into one block per tenant.

    ``tenant`` is "" for jobs over segments. ``token`` is the index of the command that assigned it last. ``spec`` holds
    the sources in merge order, ``result`` what the merge reported.
    """

    name = ByteOrderedField(max_length=JOB_NAME_MAX)
    lane = ByteOrderedField(max_length=LANE_MAX)
    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX, blank=True)
    shard = models.PositiveBigIntegerField()
    level = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=10, choices=[(state.value, state.value) for state in JobState])
    token = models.BigIntegerField(default=0)
    worker = models.ForeignKey(Worker, null=True, on_delete=models.PROTECT, related_name="jobs")
    lease_expires_ms = models.BigIntegerField(null=True)
    failures = models.PositiveIntegerField(default=0)
    parked_reason = models.CharField(max_length=500, blank=True)
    # Only of parked jobs; "" there means evicted: the schedule itself parks for no other reason.
    parked_kind = models.CharField(max_length=11, blank=True, choices=[(kind.value, kind.value) for kind in ParkedKind])
    added_at_ms = models.BigIntegerField()
    # Its sort key among the jobs of its tenant; engine.schedule.priority defines it.
    priority_ms = models.BigIntegerField(default=0)
    assigned_at_ms = models.BigIntegerField(null=True)
    finished_at_ms = models.BigIntegerField(null=True)
    created_command_index = models.BigIntegerField()
    finished_command_index = models.BigIntegerField(null=True)
    source_count = models.PositiveIntegerField()
    source_bytes = models.PositiveBigIntegerField()
    spec = models.JSONField()
    progress = models.JSONField(null=True)
    result = models.JSONField(null=True)

    objects = ConfinedManager("tenant")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["name"],
                condition=Q(state__in=[state.value for state in HOLDING_STATES]),
                name="job_name_unique_while_held",
            ),
            models.CheckConstraint(
                condition=Q(
                    state=JobState.LEASED.value, worker__isnull=False, lease_expires_ms__isnull=False, token__gt=0
                )
                | Q(~Q(state=JobState.LEASED.value), lease_expires_ms=None),
                name="job_lease_belongs_to_leased",
            ),
            models.CheckConstraint(
                condition=(Q(state=JobState.PARKED.value) & ~Q(parked_reason=""))
                | (~Q(state=JobState.PARKED.value) & Q(parked_reason="")),
                name="job_parked_with_a_reason",
            ),
            models.CheckConstraint(
                condition=Q(state=JobState.DONE.value, finished_command_index__isnull=False)
                | Q(~Q(state=JobState.DONE.value), finished_command_index=None),
                name="job_done_by_a_command",
            ),
        ]
        # The state is the first column although it is the same in all entries: otherwise SQLite prefers the last index.
        indexes = [
            # "Which waiting job of this lane comes first?" (poll)
            models.Index(
                fields=["state", "lane", "priority_ms", "name"],
                condition=Q(state=JobState.WAITING.value),
                name="job_waiting_in_order",
            ),
            # "Which waiting job of this tenant comes first?" (poll, lanes that plan ahead)
            models.Index(
                fields=["state", "lane", "tenant", "priority_ms", "name"],
                condition=Q(state=JobState.WAITING.value),
                name="job_waiting_of_tenant",
            ),
            # "Which leases have expired?" (poll)
            models.Index(
                fields=["state", "lease_expires_ms"],
                condition=Q(state=JobState.LEASED.value),
                name="job_leased_by_expiry",
            ),
            # "How much of this tenant runs?" (poll, for tenants with a cap)
            models.Index(
                fields=["state", "lane", "tenant"],
                condition=Q(state=JobState.LEASED.value),
                name="job_leased_of_tenant",
            ),
            # "What happened last?" (admin)
            models.Index(fields=["state", "-id"], name="job_by_state"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.name


class Attempt(models.Model):
    """One attempt of a job under one token, and how it ended."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempts", db_index=False)
    token = models.BigIntegerField()
    worker = models.ForeignKey(Worker, on_delete=models.PROTECT, related_name="attempts")
    assigned_at_ms = models.BigIntegerField()
    ended_at_ms = models.BigIntegerField(null=True)
    outcome = models.CharField(
        max_length=10,
        choices=[(outcome.value, outcome.value) for outcome in AttemptOutcome],
        default=AttemptOutcome.RUNNING.value,
    )
    reason = models.JSONField(null=True)
    build = models.CharField(max_length=100, blank=True, help_text="What the worker ran")

    objects = ConfinedManager("job__tenant")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "token"], name="attempt_token_unique_per_job")]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.job_id} under {self.token}"


class Limits(SingleRow):
    """Limits of the schedule; 0 means without limit (not for the lease)."""

    lease_seconds = models.PositiveIntegerField(default=15)
    failures_max = models.PositiveIntegerField(default=3)
    queue_max = models.PositiveIntegerField(default=10_000)
    cleanup_delay_seconds = models.PositiveIntegerField(default=15 * 60)
    task_memory_bytes = models.PositiveBigIntegerField(default=512 << 20)

    class Meta:
        verbose_name_plural = "limits"
        constraints = [
            models.CheckConstraint(condition=Q(id=1), name="limits_are_one_row"),
            models.CheckConstraint(condition=Q(lease_seconds__gt=0), name="limits_lease_takes_time"),
        ]

    def __str__(self) -> str:
        return "limits"


# Django finds models through this module.
from webadmin.schedule import fairness_models, operation_models  # noqa: E402, F401
