"""Fields of actions on placement: limits, and what is decided for a dataset."""

from __future__ import annotations

from engine.placement.model import SHARDS_MAX, LoadBalancing
from engine.protocol.fields import COUNT_MAX
from webadmin.base.actions.fields import Choice, Group, Number, Numbers, YesOrNo

WINDOW_MAX_S = 30 * 86_400
PINNED_MAX = 1_000
LOAD_BALANCING = Choice(
    "load_balancing",
    "Load balancing",
    "Dynamic: by fingerprint, or round robin while a shard is hot.",
    choices=tuple((one.name.lower(), one.name.lower().replace("_", " ")) for one in LoadBalancing),
)
LIMITS = Group(
    "numbers",
    "Limits",
    "Omitted limits keep their value; null removes the value.",
    component="LimitNumbers",
    fields=(
        Number("tenant_shards", "Tenant's shards", "Maximum for all datasets of the tenant; 0: all.", high=SHARDS_MAX),
        Number("dataset_shards_min", "Minimum shards per dataset", low=1, high=SHARDS_MAX),
        Number("dataset_shards_max", "Maximum shards per dataset", low=1, high=SHARDS_MAX),
        Number("default_dataset_shards", "Shards of a new dataset", "Until its load is known.", high=SHARDS_MAX),
        Number("unit_bytes", "Bytes/s per shard", "Write rate of a dataset per shard.", low=1, high=COUNT_MAX),
        LOAD_BALANCING,
        Number(
            "burst_window_s",
            "Burst window in seconds",
            "An increase within this window adds extra shards.",
            low=1,
            high=WINDOW_MAX_S,
        ),
        Number("decay_window_s", "Decay window in seconds", "Time before removal of shards.", low=1, high=WINDOW_MAX_S),
        YesOrNo("may_leave_zone", "May leave the zone", "Use shards of other zones if the own zone has too few."),
    ),
    is_required=True,
    is_nullable=True,
    is_partial=True,
)
OVERRIDE = Group(
    "override",
    "Override",
    "Override of the dataset; omitted values are unchanged; null removes the override.",
    component="OverrideValues",
    fields=(
        Numbers(
            "shards",
            "Pin to shards",
            "Shard numbers, from 1. Load and limits are then ignored.",
            low=1,
            high=SHARDS_MAX,
            count_max=PINNED_MAX,
        ),
        Number("dataset_shards", "Shards", "Replaces the number derived from the load.", high=SHARDS_MAX),
        Number("tenant_shards", "Tenant's shards", "Only for this dataset.", high=SHARDS_MAX),
        LOAD_BALANCING,
    ),
    is_required=True,
    is_nullable=True,
    is_partial=True,
)
