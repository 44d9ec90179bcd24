"""The policy of a data source, and the limits of the queue. Times are milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import xxhash

from engine.lanes.tables.plan.granularity import Granularity
from engine.schedule.errors import PolicyRefused

MB = 10**6
BYTES_MAX = 1 << 50
COST_MAX = 1 << 60
OPEN_COST_MAX = 1 << 40
HALF_LIFE_CHUNKS = 30
PERCENT = 100


class Spanning(StrEnum):
    """Which neutral chunks a task includes: all that are tied to it, or only those between others."""

    CLOSURE = "closure"
    TRIM = "trim"


class Align(StrEnum):
    """Whether segments that cross chunk borders are rewritten only for alignment."""

    NEVER = "never"
    TOUCHED = "touched"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Limits of running and waiting tasks. Raises PolicyRefused for contradictions.

    At most ``running_max`` tasks run, with a total cost of ``running_cost_max``, unless one runs alone; 0 is unlimited.
    At most ``waiting_max`` wait; deferred chunks are readmitted when at most ``low_water`` wait. A task that was passed
    over ``skips_max`` times blocks all later ones. ``ageing_ms`` is the waiting time that halves a task's distance to
    the highest priority; 0 disables ageing.
    """

    running_max: int = 0
    running_cost_max: int = 0
    waiting_max: int = 100
    low_water: int = 0
    skips_max: int = 2
    ageing_ms: int = 0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if getattr(self, name) < 0:
                raise PolicyRefused(f"{name} of {getattr(self, name)} is less than 0")
        if self.waiting_max < 1:
            raise PolicyRefused("waiting_max of 0: no task could ever start")
        if self.low_water >= self.waiting_max:
            raise PolicyRefused(
                f"low_water of {self.low_water} is not below waiting_max of {self.waiting_max}: "
                "deferred tasks would be readmitted at once"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePolicy:
    """How the chunks of a data source are scored and made into tasks. Raises PolicyRefused for invalid values.

    Segments of up to ``segment_bytes_max`` bytes, and up to ``segment_rows_max`` rows unless that is 0, are acceptable.
    A task costs its visible bytes plus ``open_cost`` per segment; tasks below ``small_cost`` are joined, those above
    ``cost_max`` are split. ``gain_half`` saved segments give half of the maximum gain. The weights, in percent, are
    those of fragmentation, oversize, alignment and recency; recency halves after ``half_life_ms`` (0: 30 chunks).
    Chunks younger than ``hot_ms`` are skipped, as are chunks that overlap ``excluded`` intervals (start, end, reason).

    ``partial_visibility``: readers can see a part of a segment. If they cannot, no task is cut through a segment.
    ``output_shape`` is everything else that determines the outputs: sort order, roll-up.
    """

    granularity: Granularity = field(default_factory=Granularity)
    segment_bytes_max: int = 500 * MB
    segment_rows_max: int = 0
    small_cost: int = 1_000 * MB
    cost_max: int = 4_000 * MB
    open_cost: int = 4 * MB
    gain_half: int = 8
    weights: tuple[int, int, int, int] = (55, 20, 10, 15)
    half_life_ms: int = 0
    hot_ms: int = 0
    spanning: Spanning = Spanning.CLOSURE
    align: Align = Align.TOUCHED
    partial_visibility: bool = True
    excluded: tuple[tuple[int, int, str], ...] = ()
    output_shape: str = ""

    def __post_init__(self) -> None:
        for name, low, high in _BOUNDS:
            if not low <= getattr(self, name) <= high:
                raise PolicyRefused(f"{name} of {getattr(self, name)} is outside {low} to {high}")
        if 2 * self.small_cost > self.cost_max:
            raise PolicyRefused(
                f"small_cost of {self.small_cost} is more than half of cost_max of {self.cost_max}: "
                "two small tasks could not be joined"
            )
        if len(self.weights) != 4 or min(self.weights) < 0 or sum(self.weights) != PERCENT:
            raise PolicyRefused(f"weights of {self.weights} are not four numbers that sum to {PERCENT} percent")
        if self.spanning is Spanning.TRIM and not self.partial_visibility:
            raise PolicyRefused("spanning=trim requires partial_visibility")
        for start_ms, end_ms, _ in self.excluded:
            if start_ms >= end_ms:
                raise PolicyRefused(f"an excluded interval from {start_ms} to {end_ms} ms is empty")

    @property
    def half_life(self) -> int:
        """The half-life of recency in milliseconds."""
        return self.half_life_ms or HALF_LIFE_CHUNKS * self.granularity.nominal_ms

    def fingerprint(self) -> str:
        """Return a text that changes when chunks must be analysed again: 16 hexadecimal digits.

        Excluded and hot chunks are not part of it, since they are compared per chunk, nor are settings of task creation
        and queue.
        """
        return _digest(
            self.output_fingerprint(),
            self.open_cost,
            self.gain_half,
            self.weights,
            self.half_life,
            self.spanning,
            self.align,
            self.partial_visibility,
        )

    def output_fingerprint(self) -> str:
        """Return a text that changes when the same sources would be merged into other outputs."""
        return _digest(self.granularity.fingerprint(), self.segment_bytes_max, self.segment_rows_max, self.output_shape)


_BOUNDS = (
    ("segment_bytes_max", 1, BYTES_MAX),
    ("segment_rows_max", 0, BYTES_MAX),
    ("small_cost", 0, COST_MAX),
    ("cost_max", 1, COST_MAX),
    ("open_cost", 0, OPEN_COST_MAX),
    ("gain_half", 1, BYTES_MAX),
    ("half_life_ms", 0, COST_MAX),
    ("hot_ms", 0, COST_MAX),
)


def _digest(*parts: object) -> str:
    return xxhash.xxh64_hexdigest(repr(tuple(map(str, parts))).encode())
