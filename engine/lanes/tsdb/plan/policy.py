"""The planning policy of a tenant's blocks. Times are milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from engine.schedule.errors import PolicyRefused

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
RANGES_MS = (2 * HOUR_MS, 12 * HOUR_MS, 24 * HOUR_MS)
CONSISTENCY_DELAY_MS = 25 * MINUTE_MS
"""How long after the upload of a level-1 block others of the same interval may still follow."""
VISIT_TIMEOUT_MS = 10 * MINUTE_MS
INDEX_BYTES_MAX = 64 << 30

DEFAULT = "default"
REFERENCE = "reference"
REFERENCE_PARTITIONS = "reference-partitions"
REFERENCE_LOCAL = "reference-local"
RULES = (DEFAULT, REFERENCE, REFERENCE_PARTITIONS, REFERENCE_LOCAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalPolicy:
    """When blocks of an interval are merged, and into how many partitions. Raises PolicyRefused for invalid values.

    ``rules`` selects the default rules or those of a reference system: the shuffle-sharding grouper (``reference``),
    the partitioning grouper, or the single-worker planner. ``ranges_ms`` are the lengths of intervals, each a multiple
    of the previous one. A partition has at most ``partition_series`` series and ``partition_index_bytes`` bytes of
    index (0: unlimited); for groups of the smallest range both are multiplied by ``replication``, since their series
    are expected in so many copies. Set ``allows_partitions`` to False if readers of the bucket treat partitions of a
    group as duplicates: groups are not partitioned, and a group that would have to be is not planned. Only the
    reference rules use ``groups_max``, the most groups of a plan (0: all), and ``cleanup_interval_ms``, which delays
    the partitioning rules.
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
            raise PolicyRefused(f"unknown rules {self.rules!r}: use one of {', '.join(RULES)}")
        check_ranges(self.ranges_ms)
        least = {"replication": 1}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name not in ("rules", "ranges_ms", "allows_partitions") and value < least.get(name, 0):
                raise PolicyRefused(f"{name} of {value} is less than {least.get(name, 0)}")

    @classmethod
    def of_reference(cls, rules: str = REFERENCE, **numbers: int) -> Self:
        """Return a policy with the defaults of the reference system."""
        return cls(rules=rules, **({"consistency_delay_ms": 0, "replication": 3, "groups_max": 1} | numbers))  # type: ignore[arg-type]


def check_ranges(ranges_ms: tuple[int, ...]) -> None:
    """Raise PolicyRefused unless each range is at least twice, and a multiple of, the previous one."""
    if not ranges_ms or ranges_ms[0] <= 0:
        raise PolicyRefused("ranges must be one or more positive lengths")
    for smaller, larger in pairwise(ranges_ms):
        if larger <= smaller or larger % smaller:
            raise PolicyRefused(f"a range of {larger} ms is not a multiple of the previous one, {smaller} ms")
