"""By which rules and numbers a tenant's blocks are planned. Times are milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from engine.schedule.errors import PolicyRefused

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
RANGES_MS = (2 * HOUR_MS, 12 * HOUR_MS, 24 * HOUR_MS)
CONSISTENCY_DELAY_MS = 25 * MINUTE_MS
"""How long after the upload of a level-1 block others of the same interval may still follow it."""
VISIT_TIMEOUT_MS = 10 * MINUTE_MS
INDEX_BYTES_MAX = 64 << 30

DEFAULT = "default"
REFERENCE = "reference"
REFERENCE_PARTITIONS = "reference-partitions"
REFERENCE_LOCAL = "reference-local"
RULES = (DEFAULT, REFERENCE, REFERENCE_PARTITIONS, REFERENCE_LOCAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalPolicy:
    """When blocks of an interval are merged, and into how many partitions. Raises PolicyRefused for what cannot be.

    ``rules`` chooses ours (``default``) or those of the systems that inspired the lane: the shuffle-sharding grouper
    (``reference``), the partitioning one, the planner of a single worker. ``ranges_ms`` are the lengths of intervals,
    each a multiple of the one before. A partition of a group gets at most ``partition_series`` series and
    ``partition_index_bytes`` bytes of index (0: any); in groups of the smallest range both count ``replication`` times,
    since the same series are expected so often. Without ``allows_partitions`` readers of the bucket take parts of a
    group for duplicates of each other: no group is cut, and one that would have to be is not planned. Only the
    reference knows ``groups_max``, the groups of a plan at most (0: all that are ready), and ``cleanup_interval_ms``,
    which delays its partitioning rules.
    """

    rules: str = DEFAULT
    ranges_ms: tuple[int, ...] = RANGES_MS
    consistency_delay_ms: int = CONSISTENCY_DELAY_MS
    partition_series: int = 0
    partition_index_bytes: int = INDEX_BYTES_MAX
    replication: int = 1
    allows_partitions: bool = True
    visit_timeout_ms: int = VISIT_TIMEOUT_MS
    groups_max: int = 0
    cleanup_interval_ms: int = 15 * MINUTE_MS

    def __post_init__(self) -> None:
        if self.rules not in RULES:
            raise PolicyRefused(f"no rules {self.rules!r} for intervals: there are {', '.join(RULES)}")
        check_ranges(self.ranges_ms)
        least = {"replication": 1}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name not in ("rules", "ranges_ms", "allows_partitions") and value < least.get(name, 0):
                raise PolicyRefused(f"{name} of {value} is less than {least.get(name, 0)}")

    @classmethod
    def of_reference(cls, rules: str = REFERENCE, **numbers: int) -> Self:
        """Return a policy with the numbers that the reference has where nobody chose others."""
        return cls(rules=rules, **({"consistency_delay_ms": 0, "replication": 3, "groups_max": 1} | numbers))  # type: ignore[arg-type]


def check_ranges(ranges_ms: tuple[int, ...]) -> None:
    """Raise PolicyRefused unless each range is a multiple, at least twice, of the one before."""
    if not ranges_ms or ranges_ms[0] <= 0:
        raise PolicyRefused("ranges are one or more lengths above zero")
    for smaller, larger in pairwise(ranges_ms):
        if larger <= smaller or larger % smaller:
            raise PolicyRefused(f"a range of {larger} ms is no multiple of the one before it, {smaller} ms")
