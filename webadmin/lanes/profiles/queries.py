"""Queries of the index for readers: datasets to read, labels, and statistics.

Services are read in batches by row id (only those of one name if a matcher requires it by equality: the name of a
dataset is its service), and label matchers are evaluated on them; the datasets of the matching services are found by
the end of their data, which is inside the range or at most one span after it. Reading stops when the answer is full, so
that memory depends on the answer and not on the tenant. All statements of an answer use one snapshot: a job's sources
or its results, never both and never neither. Times are unix milliseconds, closed at both ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db.models import BigIntegerField, ExpressionWrapper, F, Max, Min, OuterRef, Q, Subquery

from engine.formats.profile_block.container.metadata import read_tables_of_contents
from engine.formats.profile_block.model import DATASET_INDEX, Labels
from engine.formats.profile_block.selectors import Matcher, MatchOperator, project, select_label_sets
from engine.lanes.profiles.jobs import DeleteMask
from engine.query.errors import QueryTooLarge
from webadmin.base.access.models import Tenant
from webadmin.base.database.dialect import one_snapshot
from webadmin.lanes.profiles.errors import IndexMoved, InvalidIndexQuery
from webadmin.lanes.profiles.masks import read_masks, reading_masks
from webadmin.lanes.profiles.models import Block, Dataset, DatasetName, LabelSets, TenantService
from webadmin.lanes.profiles.query_cursor import Cursor, Place, blocks_of, check_unmoved, read_snapshot
from webadmin.lanes.profiles.states import LIVE_STATES

TENANTS_MAX = 1_000
SERVICES_PER_QUERY = 500
LABEL_SETS_PER_QUERY = 500
LABEL_NAMES_MAX = 100
BLOCKS_PER_QUERY = 500
ROWS_PER_QUERY_MIN = 1_000
SERVICE_NAME = "service_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """A query. ``labels`` are the label names to return; if it is empty, no labels are returned.

    With ``by_name`` a dataset without label sets, as old writers leave it, matches like one of the service of its name;
    otherwise it is found only without matchers. ``datasets_max`` limits the datasets of one answer (0: no limit).
    """

    tenants: tuple[str, ...]
    start_ms: int
    end_ms: int
    matchers: tuple[Matcher, ...] = ()
    labels: tuple[str, ...] = ()
    by_name: bool = False
    datasets_max: int = 0

    def check(self) -> None:
        """Raise InvalidIndexQuery if the query is invalid."""
        if not 0 < len(self.tenants) <= TENANTS_MAX or "" in self.tenants:
            raise InvalidIndexQuery(f"name 1 to {TENANTS_MAX} tenants")
        if not 0 <= self.start_ms <= self.end_ms < 1 << 63:
            raise InvalidIndexQuery("the range ends before it starts, or starts before 1970")
        if len(self.labels) > LABEL_NAMES_MAX:
            raise InvalidIndexQuery(f"ask for at most {LABEL_NAMES_MAX} label names")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFound:
    """A matching dataset; ``position`` is its index in the block, ``labels`` the requested labels of its matching sets.

    ``masks`` are the delete requests whose rows a reader must leave out (``engine.lanes.profiles.merge.masks``): its
    bytes obey only those up to ``masks_applied``.
    """

    position: int
    tenant: str
    name: str
    format: int
    min_time_ms: int
    max_time_ms: int
    size: int
    masks_applied: int
    table_of_contents: tuple[int, ...]
    labels: tuple[Labels, ...]
    masks: tuple[DeleteMask, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFound:
    """A live block with its matching datasets, by position. ``tenant`` is "" for a segment."""

    row_id: int
    id: str
    tenant: str
    shard: int
    level: int
    object_key: str
    size: int
    crc32c: int | None
    min_time_ms: int
    max_time_ms: int
    added_command_index: int
    datasets: tuple[DatasetFound, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantStatistics:
    """The time range of a tenant's live data; zeros if it has none."""

    has_data: bool
    oldest_ms: int = 0
    newest_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFound:
    """A service with live data: its time range, and the label sets of its datasets (old writers: none)."""

    name: str
    oldest_ms: int
    newest_ms: int
    label_sets: tuple[Labels, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPage:
    """A page of an answer; ``cursor`` selects the next one, "" on the last page.

    A block may be in several pages, each time with other datasets.
    """

    blocks: list[BlockFound]
    cursor: str


def find_blocks(query: IndexQuery) -> list[BlockFound]:
    """Return the blocks with matching datasets, by tenant ("" first), shard and id.

    Raises InvalidIndexQuery, QueryTooLarge with more than ``datasets_max`` datasets, or, within a transaction of the
    caller that is no snapshot, IndexMoved.
    """
    query.check()
    with one_snapshot():
        masks = read_masks(query.tenants)
        rows, _, is_more = _read_rows(query, masks, Q(block__state__in=LIVE_STATES), Place())
        if is_more:
            raise QueryTooLarge("datasets", query.datasets_max)
        return _blocks(rows, query, masks)


def find_page(query: IndexQuery, cursor: str = "") -> BlockPage:
    """Return up to ``datasets_max`` datasets of the answer after the cursor of the previous page ("": the first).

    All pages show the blocks that were live at the command index of the first one. Raises InvalidIndexQuery, or
    IndexMoved if data that may belong to the answer was removed or hidden since then.
    """
    query.check()
    if not query.datasets_max:
        raise InvalidIndexQuery("pages need datasets_max")
    given = Cursor.parse(cursor, _identity(query)) if cursor else None
    with one_snapshot():
        masks = read_masks(query.tenants)
        now = read_snapshot(masks)
        shown = given.snapshot if given else now
        check_unmoved(shown, now, query.tenants)
        rows, last, is_more = _read_rows(query, masks, blocks_of(shown), given.place if given else Place())
        blocks = _blocks(rows, query, masks)
    following = Cursor(query=_identity(query), snapshot=shown, place=last).to_text() if is_more else ""
    return BlockPage(blocks=blocks, cursor=following)


def find_labels(query: IndexQuery) -> list[Labels]:
    """Return the distinct projections of matching datasets to the requested labels, sorted; empty without labels."""
    query.check()
    if not query.labels:
        return []
    with one_snapshot():
        rows, _, _ = _read_rows(query, read_masks(query.tenants), Q(block__state__in=LIVE_STATES), Place())
        return sorted({labels for found in _projected_labels(rows, query).values() for labels in found})


def tenant_statistics(tenant: str) -> TenantStatistics:
    """Return the time range of a tenant's live data; zeros for an unknown tenant. Costs a few reads per service."""
    live = Dataset.objects.filter(
        tenant=OuterRef("tenant"), name=OuterRef("name"), block__state__in=LIVE_STATES
    ).order_by("max_time_ms")
    services = TenantService.objects.filter(tenant__name=tenant)
    ends = services.annotate(
        first_end=Subquery(live.values("max_time_ms")[:1]), last_end=Subquery(live.reverse().values("max_time_ms")[:1])
    ).aggregate(first=Min("first_end"), last=Max("last_end"), span=Max("span_max_ms"))
    if ends["last"] is None:
        return TenantStatistics(has_data=False)
    # The dataset that starts first ends at most one span after the one that ends first.
    early = Dataset.objects.filter(
        tenant__name=tenant,
        name__in=services.values("name"),
        max_time_ms__lte=ends["first"] + ends["span"],
        block__state__in=LIVE_STATES,
    )
    oldest = early.aggregate(oldest=Min("min_time_ms"))["oldest"]
    return TenantStatistics(has_data=True, oldest_ms=oldest or 0, newest_ms=ends["last"])


def unknown_tenants(tenants: Iterable[str]) -> list[str]:
    """Return the tenants of which the index never had a dataset, sorted."""
    known = TenantService.objects.filter(tenant__name__in=list(tenants)).values_list("tenant__name", flat=True)
    return sorted(set(tenants) - set(known.distinct()))


def tenant_services(tenant: str) -> Iterator[ServiceFound]:
    """Yield the services of a tenant with live data, by name. Costs a few reads per service; reads no block.

    Only the label sets of one service are in memory at a time.
    """
    masks = read_masks((tenant,))
    live = Dataset.objects.filter(tenant=OuterRef("tenant"), name=OuterRef("name"), block__state__in=LIVE_STATES)
    by_end = live.order_by("max_time_ms")
    first_end = F("first_end") + F("span_max_ms")
    rows = (
        TenantService.objects.filter(tenant__name=tenant)
        .exclude(name__name="")
        .annotate(first_end=Subquery(by_end.values("max_time_ms")[:1]))
        .annotate(newest=Subquery(by_end.reverse().values("max_time_ms")[:1]))
        .exclude(newest=None)
        .annotate(early_end=ExpressionWrapper(first_end, output_field=BigIntegerField()))
        # The dataset that starts first ends at most one span after the one that ends first.
        .annotate(
            oldest=Subquery(
                live.filter(max_time_ms__lte=OuterRef("early_end")).order_by("min_time_ms").values("min_time_ms")[:1]
            )
        )
        .order_by("name__name", "id")
        .values_list("name__name", "label_sets__label_sets", "oldest", "newest")
    )
    for name, listed in groupby(rows.iterator(SERVICES_PER_QUERY), key=itemgetter(0)):
        shown = [
            (label_sets, oldest_ms, newest_ms)
            for _, label_sets, oldest_ms, newest_ms in listed
            if not any(mask.service in ("", name) and mask.takes_all(oldest_ms, newest_ms) for mask in masks)
        ]
        if shown:
            yield ServiceFound(
                name=name,
                oldest_ms=min(oldest_ms for _, oldest_ms, _ in shown),
                newest_ms=max(newest_ms for _, _, newest_ms in shown),
                label_sets=tuple(labels for label_sets, _, _ in shown for labels in _label_sets(label_sets)),
            )


def _identity(query: IndexQuery) -> str:
    """Return the text that binds a cursor to its query; the page size is not part of it."""
    matchers = [str(matcher) for matcher in query.matchers]
    return repr((query.tenants, query.start_ms, query.end_ms, matchers, query.labels, query.by_name))


def _read_rows(
    query: IndexQuery, masks: Sequence[DeleteMask], blocks: Q, place: Place
) -> tuple[list[tuple[Any, ...]], Place, bool]:
    """Return the rows after a place, at most ``datasets_max``; the place of the last one; whether there are more."""
    rows: list[tuple[Any, ...]] = []
    last = place
    for after, until, services in _service_batches(query, place):
        matching = _matching_services(services, query)
        if place.services_until != until:
            place = Place(services_after=after, services_until=until)
        is_left = bool(matching)
        while is_left:
            limit = max(query.datasets_max + 1 - len(rows), ROWS_PER_QUERY_MIN) if query.datasets_max else 0
            part = _dataset_rows(matching, query, blocks, place, limit)
            for row in part:
                place = Place(services_after=after, services_until=until, end_ms=row[10], dataset=row[0])
                if row[1:4] in matching and _is_visible(row, masks):
                    if 0 < query.datasets_max == len(rows):
                        return rows, last, True
                    rows.append(row[1:])
                    last = place
            is_left = 0 < limit == len(part)
    return rows, last, False


def _service_batches(query: IndexQuery, place: Place) -> Iterator[tuple[int, int, list[tuple[Any, ...]]]]:
    """Yield services by row id from the batch of a place on, with the row ids that bound each batch: (after, until].

    Rows are only added: a batch that is read again has the same rows, and perhaps services of later blocks. If a
    matcher requires the service by equality, only datasets of that name are read, and dataset indexes, which have no
    name.
    """
    tenants = list(Tenant.objects.filter(name__in=query.tenants).values_list("id", flat=True))
    columns = ["id", "tenant_id", "name_id", "label_sets_id", "span_max_ms"]
    if query.matchers:
        columns += ["label_sets__label_sets", "name__name"]
    listed = TenantService.objects.filter(tenant__in=tenants).order_by("id").values_list(*columns)
    for matcher in query.matchers:
        is_equality = matcher.name == SERVICE_NAME and matcher.operator is MatchOperator.EQUAL
        if is_equality and matcher.value and matcher.value.isprintable():  # databases reject NUL and surrogates
            listed = listed.filter(name__in=DatasetName.objects.filter(name__in=(matcher.value, "")).values("id"))
    after = place.services_after
    if place.services_until:
        services = list(listed.filter(id__gt=after, id__lte=place.services_until))
        yield after, place.services_until, services
        after = place.services_until
    while services := list(listed.filter(id__gt=after)[:SERVICES_PER_QUERY]):
        until = services[-1][0]
        yield after, until, services
        if len(services) < SERVICES_PER_QUERY:
            return
        after = until


def _matching_services(services: Iterable[tuple[Any, ...]], query: IndexQuery) -> dict[tuple[int, int, int], int]:
    """Return the keys (tenant, name, label sets) and spans of matching services; without matchers all match."""
    if not query.matchers:
        return {service[1:4]: service[4] for service in services}
    found: dict[tuple[int, int, int], int] = {}
    for service in services:
        *_, span_max_ms, label_sets, name = service
        sets = _label_sets(label_sets)
        if query.by_name and not sets and name:
            sets = [((SERVICE_NAME, name),)]
        if select_label_sets(sets, query.matchers):
            found[service[1:4]] = span_max_ms
    return found


def _dataset_rows(
    services: Mapping[tuple[int, int, int], int], query: IndexQuery, blocks: Q, place: Place, limit: int
) -> list[tuple[Any, ...]]:
    """Return datasets of these services in the range after a place, by the end of their data.

    Others of the same names may be among them. At most ``limit`` rows (0: all).
    """
    tenants, names, label_sets = (sorted(ids) for ids in map(set, zip(*services, strict=True)))
    found = Dataset.objects.filter(
        blocks,
        tenant__in=tenants,
        name__in=names,
        label_sets__in=label_sets,
        max_time_ms__gte=max(query.start_ms, place.end_ms),
        max_time_ms__lte=query.end_ms + max(services.values()),
        min_time_ms__lte=query.end_ms,
        block__min_time_ms__lte=query.end_ms,
        block__max_time_ms__gte=query.start_ms,
    )
    if place.dataset:
        found = found.filter(Q(max_time_ms__gt=place.end_ms) | Q(id__gt=place.dataset))
    if limit:
        # No index has this order, so that the database uses the index by service instead.
        found = found.order_by("max_time_ms", "id")[:limit]
    return list(
        found.values_list(
            *("id", "tenant_id", "name_id", "label_sets_id", "block_id", "position"),
            *("tenant__name", "name__name", "format", "min_time_ms", "max_time_ms", "size_bytes", "masks_applied"),
            *("block__ulid", "block__tenant__name", "block__shard", "block__level", "block__object_key"),
            *("block__size_bytes", "block__crc32c", "block__min_time_ms", "block__max_time_ms"),
            "block__added_command_index",
        )
    )


def _blocks(rows: Sequence[tuple[Any, ...]], query: IndexQuery, masks: Sequence[DeleteMask]) -> list[BlockFound]:
    """Return the blocks of these rows, by tenant, shard and id; further columns are read only for these rows."""
    labels = _projected_labels(rows, query)
    tables = _tables_of_contents(rows)
    blocks: dict[int, list[DatasetFound]] = {}
    facts: dict[int, tuple[Any, ...]] = {}
    for row in sorted(rows, key=lambda row: (row[3], row[4])):
        (block_id, position), dataset, block = row[3:5], row[5:12], row[12:]
        if (block_id, position) not in tables:
            raise IndexMoved("blocks were deleted while the index was read: ask again")
        facts[block_id] = block
        table, own = tables[block_id, position], _masks_of(dataset, masks)
        blocks.setdefault(block_id, []).append(_dataset(position, dataset, table, labels.get(row[2], ()), own))
    found = [_block(block_id, facts[block_id], datasets) for block_id, datasets in blocks.items()]
    return sorted(found, key=lambda block: (block.tenant, block.shard, block.id))


def _projected_labels(rows: Iterable[tuple[Any, ...]], query: IndexQuery) -> dict[int, tuple[Labels, ...]]:
    """Return the requested labels of the matching sets by row id of the label sets."""
    found: dict[int, tuple[Labels, ...]] = {}
    ids = sorted({row[2] for row in rows}) if query.labels else []
    for part in _parts(ids, LABEL_SETS_PER_QUERY):
        for row_id, label_sets in LabelSets.objects.filter(id__in=part).values_list("id", "label_sets"):
            matching = select_label_sets(_label_sets(label_sets), query.matchers)
            found[row_id] = tuple(project(matching, query.labels))
    return found


def _label_sets(stored: Iterable[Iterable[Sequence[str]]]) -> list[Labels]:
    return [tuple((name, value) for name, value in labels) for labels in stored]


def _is_visible(row: tuple[Any, ...], masks: Sequence[DeleteMask]) -> bool:
    """Return whether no delete request hides all of the dataset of a row."""
    dataset = row[6:13]
    _, name, _, min_time_ms, max_time_ms, *_ = dataset
    return not any(
        mask.takes_all(min_time_ms, max_time_ms) and mask.service in ("", name) for mask in _masks_of(dataset, masks)
    )


def _masks_of(dataset: tuple[Any, ...], masks: Sequence[DeleteMask]) -> tuple[DeleteMask, ...]:
    """Return the masks of a dataset; a tenant's dataset index gets the masks of all services."""
    tenant, name, format_number, min_time_ms, max_time_ms, _, applied = dataset
    if format_number == DATASET_INDEX:
        return tuple(mask for mask in masks if mask.tenant == tenant and mask.index > applied)
    return reading_masks(
        masks, tenant=tenant, name=name, masks_applied=applied, min_time_ms=min_time_ms, max_time_ms=max_time_ms
    )


def _tables_of_contents(rows: Iterable[tuple[Any, ...]]) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return the section offsets of these datasets from their blocks' metadata, except for blocks deleted since."""
    positions: dict[int, list[int]] = {}
    for row in rows:
        positions.setdefault(row[3], []).append(row[4])
    tables: dict[tuple[int, int], tuple[int, ...]] = {}
    for part in _parts(sorted(positions), BLOCKS_PER_QUERY):
        for block_id, metadata in Block.objects.filter(id__in=part).values_list("id", "metadata"):
            if not metadata:  # replaced and deleted since its rows were read: only possible without a snapshot
                continue
            read = read_tables_of_contents(bytes(metadata), positions[block_id])
            tables |= {(block_id, position): table for position, table in read.items()}
    return tables


def _dataset(
    position: int,
    row: tuple[Any, ...],
    table: tuple[int, ...],
    labels: tuple[Labels, ...],
    masks: tuple[DeleteMask, ...],
) -> DatasetFound:
    tenant, name, format_number, min_time_ms, max_time_ms, size, masks_applied = row
    return DatasetFound(
        position=position,
        tenant=tenant,
        name=name,
        format=format_number,
        min_time_ms=min_time_ms,
        max_time_ms=max_time_ms,
        size=size,
        masks_applied=masks_applied,
        table_of_contents=table,
        labels=labels,
        masks=masks,
    )


def _block(row_id: int, row: tuple[Any, ...], datasets: list[DatasetFound]) -> BlockFound:
    ulid, tenant, shard, level, object_key, size, crc32c, min_time_ms, max_time_ms, added = row
    return BlockFound(
        row_id=row_id,
        id=ulid,
        tenant=tenant or "",
        shard=shard,
        level=level,
        object_key=object_key,
        size=size,
        crc32c=crc32c,
        min_time_ms=min_time_ms,
        max_time_ms=max_time_ms,
        added_command_index=added,
        datasets=tuple(datasets),
    )


def _parts(values: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
