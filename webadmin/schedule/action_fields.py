"""Fields that actions on the schedule share: which jobs, and which part of the schedule."""

from __future__ import annotations

from engine.schedule.limits import Scope, ScopeKind
from engine.schedule.model import ParkedKind
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.actions.fields import Choice, Group, Number, Switch, Text, Texts
from webadmin.schedule.models import JOB_NAME_MAX, LANE_MAX
from webadmin.schedule.register import NAMES_MAX, JobFilter

ERROR_CLASS_MAX = 100
LEVEL_MAX = 100
SHARD_MAX = (1 << 32) - 1

JOBS = Group(
    "filter",
    "Jobs",
    "Which jobs: those that match all that is given.",
    component="JobFilter",
    fields=(
        Texts("jobs", "Jobs", "Names.", length_max=JOB_NAME_MAX, count_max=NAMES_MAX),
        Switch("all", "All of them", "Confirms that an empty filter is intended."),
        Text(
            "error_class",
            "Error class",
            "Of the last attempt that failed, for example ChecksumMismatch.",
            length_max=ERROR_CLASS_MAX,
            default=None,
        ),
        Text("lane", "Lane", "A lane's name.", length_max=LANE_MAX, default=None),
        Text("tenant", "Tenant", "A tenant's name.", length_max=TENANT_NAME_MAX, default=None),
        Number("shard", "Shard", "A shard's number.", high=SHARD_MAX),
        Number("level", "Level", "0 is segments.", high=LEVEL_MAX),
        Choice(
            "kind",
            "Kind",
            "Why they are parked. Requeue by filter: evicted jobs if none is given.",
            choices=tuple((kind.value, kind.value) for kind in ParkedKind),
            make=ParkedKind,
        ),
    ),
    make=lambda jobs, all, **given: JobFilter(names=jobs, everything=all, **given),
)
SCOPE = Group(
    "scope",
    "Scope",
    "What it holds for; default: everything.",
    component="Scope",
    fields=(
        Choice(
            "kind",
            "For",
            input_name="scope_kind",
            choices=(
                (ScopeKind.GLOBAL.value, "everything"),
                (ScopeKind.LANE.value, "a lane"),
                (ScopeKind.TENANT.value, "a tenant"),
                (ScopeKind.LEVEL.value, "a level"),
                (ScopeKind.JOB.value, "a job"),
            ),
            make=ScopeKind,
            default=ScopeKind.GLOBAL,
        ),
        Text(
            "value",
            "Which",
            "The lane, tenant (empty: segments), level or job; nothing for everything.",
            input_name="scope_value",
            length_max=JOB_NAME_MAX,
        ),
    ),
    make=Scope,
)
