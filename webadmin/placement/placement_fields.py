"""Fields of actions on placement: limits, and what is decided for a dataset."""

from __future__ import annotations

from engine.placement.model import SHARDS_MAX, LoadBalancing
from engine.protocol.fields import COUNT_MAX
from webadmin.base.actions.fields import Choice, Group, Number, Numbers, YesOrNo

WINDOW_MAX_S = 30 * 86_400
PINNED_MAX = 1_000
LOAD_BALANCING = Choice(
    "load_balancing",
    "How a shard is picked",
    "Dynamic: by fingerprint, or round robin while a shard is hot.",
    choices=tuple((one.name.lower(), one.name.lower().replace("_", " ")) for one in LoadBalancing),
)
LIMITS = Group(
    "numbers",
    "Limits",
    "Those that are not given keep their value; null removes the value.",
    component="LimitNumbers",
    fields=(
        Number("tenant_shards", "Tenant's shards", "At most so many for all datasets; 0: all.", high=SHARDS_MAX),
        Number("dataset_shards_min", "A dataset's shards at least", low=1, high=SHARDS_MAX),
        Number("dataset_shards_max", "A dataset's shards at most", low=1, high=SHARDS_MAX),
        Number("default_dataset_shards", "A new dataset's shards", "Until something is known of it.", high=SHARDS_MAX),
        Number("unit_bytes", "Bytes/s of one shard", "What a dataset may write per shard.", low=1, high=COUNT_MAX),
        LOAD_BALANCING,
        Number(
            "burst_window_s",
            "Burst window in seconds",
            "A rise within it adds more than is missing.",
            low=1,
            high=WINDOW_MAX_S,
        ),
        Number("decay_window_s", "Decay window in seconds", "So long a need is kept.", low=1, high=WINDOW_MAX_S),
        YesOrNo("may_leave_zone", "May leave the zone", "Whether other zones take what does not fit."),
    ),
    is_required=True,
    is_nullable=True,
    is_partial=True,
)
OVERRIDE = Group(
    "override",
    "Override",
    "What is decided for the dataset; what is not given keeps its value; null takes it back.",
    component="OverrideValues",
    fields=(
        Numbers(
            "shards",
            "Pin to shards",
            "Numbers from 1. Nothing else decides then.",
            low=1,
            high=SHARDS_MAX,
            count_max=PINNED_MAX,
        ),
        Number("dataset_shards", "Shards", "Instead of what its load asks for.", high=SHARDS_MAX),
        Number("tenant_shards", "Tenant's shards", "For this dataset alone.", high=SHARDS_MAX),
        LOAD_BALANCING,
    ),
    is_required=True,
    is_nullable=True,
    is_partial=True,
)
