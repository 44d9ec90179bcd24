"""Data types of profile queries: the query, the blocks to read, the cost of an answer.

Times of a query are unix milliseconds, closed at both ends. A row's time is truncated to milliseconds, so the ranges
``[a, b]`` and ``[b + 1, c]`` contain every row once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.core.errors import LithifyError
from engine.formats.profile_block.model import DATASET_PROFILES, BlockMeta, DatasetMeta
from engine.formats.profile_block.selectors import Matcher, MatchOperator, fits
from engine.lanes.profiles.jobs import DeleteMask
from engine.query.errors import InvalidQuestion
from engine.storage.model import ObjectNotFound

PROFILE_TYPE = "__profile_type__"
SERVICE_NAME = "service_name"
NANOS_PER_MS = 1_000_000
TIME_MAX_MS = (1 << 63) // NANOS_PER_MS - 1
TYPE_PARTS = (5, 6)
CONDITIONS_MAX = 100
"""Maximum number of conditions of a query, from all selectors."""

INDEX_LABELS = (SERVICE_NAME, PROFILE_TYPE)
"""Labels of a dataset's label sets that a query reads from the index."""

Visible = Mapping[str, Mapping[int, Sequence[DeleteMask]]]
"""Visible data: by object key, the positions of readable datasets with the delete masks not applied to their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataset:
    """A readable dataset of a block. ``profile_types`` is None if they are known only after it is opened.

    ``masks`` are the delete requests to apply to its rows.
    """

    position: int
    tenant: str
    name: str
    format: int
    min_time_ms: int
    max_time_ms: int
    table_of_contents: tuple[int, ...]
    size: int
    profile_types: frozenset[str] | None = None
    masks: tuple[DeleteMask, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryBlock:
    """An object of ``size`` bytes with the datasets that may match a query."""

    key: str
    size: int
    datasets: tuple[QueryDataset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The selection of rows. Empty sets of ids match any; span ids are the little-endian numbers of rows."""

    start_ms: int
    end_ms: int
    matchers: tuple[Matcher, ...] = ()
    profile_ids: frozenset[bytes] = frozenset()
    span_ids: frozenset[int] = frozenset()
    trace_ids: frozenset[bytes] = frozenset()

    def check(self) -> None:
        """Raise InvalidQuestion if the query is invalid."""
        if self.start_ms > self.end_ms:
            raise InvalidQuestion("query start time is after end time")
        if len(self.matchers) > CONDITIONS_MAX:
            raise InvalidQuestion(f"{len(self.matchers)} conditions on labels; {CONDITIONS_MAX} are allowed")
        if self.span_ids and self.trace_ids:
            raise InvalidQuestion("ask for spans or for traces, not for both")

    def of_type(self, profile_type: str) -> Question:
        """Return the query restricted to one profile type. Raises InvalidQuestion."""
        condition = Matcher(PROFILE_TYPE, MatchOperator.EQUAL, type_id(profile_type))
        return replace(self, matchers=(condition, *self.matchers))

    @property
    def index_matchers(self) -> tuple[Matcher, ...]:
        """Return the conditions that a dataset's label sets decide: those on the service name."""
        return tuple(
            condition
            for condition in self.matchers
            if condition.name == SERVICE_NAME and (condition.operator.is_negative or not fits(condition, ""))
        )

    @property
    def start_ns(self) -> int:
        return max(self.start_ms, -TIME_MAX_MS) * NANOS_PER_MS

    @property
    def end_ns(self) -> int:
        return min(self.end_ms, TIME_MAX_MS) * NANOS_PER_MS + NANOS_PER_MS - 1

    def may_be_in(self, dataset: QueryDataset) -> bool:
        """Return whether a dataset can have matching rows, as far as known without opening it."""
        is_timed = dataset.max_time_ms != 0
        if is_timed and (dataset.max_time_ms < self.start_ms or dataset.min_time_ms > self.end_ms):
            return False
        if any(mask.takes_all(dataset.min_time_ms, dataset.max_time_ms) for mask in dataset.masks):
            return False
        if dataset.profile_types is None:
            return True
        typed = [condition for condition in self.matchers if condition.name == PROFILE_TYPE]
        return any(all(fits(condition, value) for condition in typed) for value in dataset.profile_types)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """Limits of one query; exceeding one raises QueryTooLarge or QueryTimedOut.

    ``memory`` is the maximum memory of the answer and of the data being read, in bytes; ``engine.query.memory`` derives
    other limits from it. ``points`` is the maximum per series.
    """

    objects: int = 200_000
    bytes: int = 8 << 30
    series: int = 100_000
    rows: int = 10_000_000
    points: int = 100_000
    memory: int = 4 << 30
    seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A dataset, or a whole object (no ``service``), that is missing from an answer, with the error."""

    key: str
    tenant: str
    service: str
    error: LithifyError

    @property
    def is_missing(self) -> bool:
        """Return whether the object does not exist; it may have been replaced since."""
        return isinstance(self.error, ObjectNotFound)

    def __str__(self) -> str:
        return f"{self.service or 'dataset index'} in {self.key}: {self.error}"


PHASES = ("index", "open", "series", "rows", "symbols", "merge")


@dataclass(slots=True, kw_only=True)
class QueryCost:
    """The cost of an answer. ``rows_read`` counts matching rows.

    ``phases`` holds the seconds of each of PHASES summed over threads, so the total may exceed ``seconds``. Bytes from
    the cache are not in ``bytes_read``.
    """

    objects_opened: int = 0
    datasets_read: int = 0
    requests: int = 0
    bytes_read: int = 0
    rows_read: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryReport:
    """The report of an answer: its cost and its damage."""

    cost: QueryCost
    damage: tuple[Damage, ...] = ()

    @property
    def is_partial(self) -> bool:
        return bool(self.damage)


def type_id(text: str) -> str:
    """Return the first five of a profile type id's five or six parts, as in series. Raises InvalidQuestion."""
    parts = text.split(":")
    if len(parts) not in TYPE_PARTS:
        raise InvalidQuestion(
            "profile-type selection must be of the form "
            f"<name>:<sample-type>:<sample-unit>:<period-type>:<period-unit>(:delta), got({len(parts)}): {text}"
        )
    return ":".join(parts[:5])


def profile_types_of(label_sets: Iterable[Iterable[tuple[str, str]]]) -> frozenset[str] | None:
    """Return the profile types in a dataset's label sets; None if there are none, as from old writers."""
    found = frozenset(value for labels in label_sets for name, value in labels if name == PROFILE_TYPE)
    return found or None


def blocks_of(blocks: Iterable[tuple[str, BlockMeta]], visible: Visible | None = None) -> list[QueryBlock]:
    """Return blocks from (object key, metadata with ``size``); with ``visible`` None all datasets are visible."""
    found = []
    for key, meta in blocks:
        shown = dict.fromkeys(range(len(meta.datasets)), ()) if visible is None else visible.get(key, {})
        datasets = [_dataset(position, meta.datasets[position], masks) for position, masks in sorted(shown.items())]
        if datasets:
            found.append(QueryBlock(key=key, size=meta.size, datasets=tuple(datasets)))
    return found


def profile_datasets(block: QueryBlock) -> list[QueryDataset]:
    """Return the datasets with rows, without the dataset indexes."""
    return [dataset for dataset in block.datasets if dataset.format == DATASET_PROFILES]


def _dataset(position: int, dataset: DatasetMeta, masks: Sequence[DeleteMask]) -> QueryDataset:
    return QueryDataset(
        position=position,
        tenant=dataset.tenant,
        name=dataset.name,
        format=dataset.format,
        min_time_ms=dataset.min_time_ms,
        max_time_ms=dataset.max_time_ms,
        table_of_contents=dataset.table_of_contents,
        size=dataset.size,
        profile_types=profile_types_of(dataset.labels),
        masks=tuple(masks),
    )
