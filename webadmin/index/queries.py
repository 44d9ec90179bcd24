"""What others may ask of the index: which datasets of which blocks to read, which labels there are, how much there is.

Everything starts from the list of services, which is small: label matchers are decided there. The datasets of the
services that match are found by the end of their data, which lies inside the range or at most one span behind it.
Only live blocks count, and one statement decides which: so a query sees a job's sources or its results, never both and
never neither. Times are unix milliseconds, closed at both ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from django.db.models import BigIntegerField, ExpressionWrapper, F, Max, Min, OuterRef, QuerySet, Subquery

from engine.profiles.model import DATASET_INDEX, Labels
from engine.profiles.query.errors import QueryTooLarge
from engine.profiles.query.selectors import Matcher, project, select_label_sets
from engine.profiles.sections import read_tables_of_contents
from engine.protocol.profile_jobs import DeleteMask
from webadmin.index.errors import IndexMoved, InvalidIndexQuery
from webadmin.index.masks import read_masks, reading_masks
from webadmin.index.models import Block, Dataset, LabelSets, TenantService
from webadmin.index.states import LIVE_STATES

TENANTS_MAX = 1_000
NAMES_PER_QUERY = 500
LABEL_NAMES_MAX = 100
BLOCKS_PER_QUERY = 500
LOOKS_MAX = 5
SERVICE_NAME = "service_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """What to look for. ``labels`` are the label names to return; without them no labels are.

    With ``by_name`` a dataset without label sets, as old writers leave it, counts as one of the service of its name;
    otherwise it can only be found without matchers. More than ``datasets_max`` datasets (0: any number) are not looked
    at: QueryTooLarge.
    """

    tenants: tuple[str, ...]
    start_ms: int
    end_ms: int
    matchers: tuple[Matcher, ...] = ()
    labels: tuple[str, ...] = ()
    by_name: bool = False
    datasets_max: int = 0

    def check(self) -> None:
        """Raise InvalidIndexQuery if there is no sense in it."""
        if not 0 < len(self.tenants) <= TENANTS_MAX or "" in self.tenants:
            raise InvalidIndexQuery(f"name 1 to {TENANTS_MAX} tenants")
        if not 0 <= self.start_ms <= self.end_ms < 1 << 63:
            raise InvalidIndexQuery("the range ends before it starts, or starts before 1970")
        if len(self.labels) > LABEL_NAMES_MAX:
            raise InvalidIndexQuery(f"ask for at most {LABEL_NAMES_MAX} label names")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFound:
    """A matching dataset; ``position`` is its place in the block, ``labels`` what of its matching sets was asked for.

    ``masks`` are the delete requests whose rows a reader must leave out (``engine.profiles.masks``): its bytes obey
    only those up to ``masks_applied``.
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
    """The times of a tenant's live data; zeros if it has none."""

    has_data: bool
    oldest_ms: int = 0
    newest_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFound:
    """A service with live data: the times of it, and the label sets of its datasets (old writers: none)."""

    name: str
    oldest_ms: int
    newest_ms: int
    label_sets: tuple[Labels, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    tenant_id: int
    name_id: int
    label_sets_id: int
    span_max_ms: int
    matching: tuple[Labels, ...]

    @property
    def key(self) -> tuple[int, int, int]:
        return (self.tenant_id, self.name_id, self.label_sets_id)


def find_blocks(query: IndexQuery) -> list[BlockFound]:
    """Return the blocks with matching datasets, by tenant ("" first), shard and id.

    Raises InvalidIndexQuery, QueryTooLarge or IndexMoved.
    """
    query.check()
    for _ in range(LOOKS_MAX):
        if (found := _look(query)) is not None:
            return found
    raise IndexMoved("blocks were deleted faster than the index could be read: ask again")


def _look(query: IndexQuery) -> list[BlockFound] | None:
    """Return what there is at this moment; None if a block's object was deleted while this was looking."""
    services = {service.key: service for service in _matching_services(query)}
    masks = read_masks(query.tenants)  # before the rows: what is done in between was rewritten
    rows = [row for row in _visible_rows(list(services.values()), query, masks) if row[:3] in services]
    tables = _tables_of_contents(rows)
    blocks: dict[int, list[DatasetFound]] = {}
    facts: dict[int, tuple] = {}
    for row in sorted(rows, key=lambda row: (row[3], row[4])):
        (block_id, position), dataset, block = row[3:5], row[5:12], row[12:]
        if (block_id, position) not in tables:
            return None
        facts[block_id] = block
        labels = tuple(project(services[row[:3]].matching, query.labels)) if query.labels else ()
        table, own = tables[block_id, position], _masks_of(dataset, masks)
        blocks.setdefault(block_id, []).append(_dataset(position, dataset, table, labels, own))
    found = [_block(block_id, facts[block_id], datasets) for block_id, datasets in blocks.items()]
    return sorted(found, key=lambda block: (block.tenant, block.shard, block.id))


def find_labels(query: IndexQuery) -> list[Labels]:
    """Return the distinct projections of the asked-for labels over matching datasets, sorted; none if none asked."""
    query.check()
    if not query.labels:
        return []
    services = {service.key: service for service in _matching_services(query)}
    masks = read_masks(query.tenants)
    live = {row[:3] for row in _visible_rows(list(services.values()), query, masks)} & services.keys()
    return sorted({labels for key in live for labels in project(services[key].matching, query.labels)})


def tenant_statistics(tenant: str) -> TenantStatistics:
    """Return the bounds of a tenant's live data; an unknown tenant has none. Costs a few reads per service."""
    live = Dataset.objects.filter(
        tenant=OuterRef("tenant"), name=OuterRef("name"), block__state__in=LIVE_STATES
    ).order_by("max_time_ms")
    services = TenantService.objects.filter(tenant__name=tenant)
    ends = services.annotate(
        first_end=Subquery(live.values("max_time_ms")[:1]), last_end=Subquery(live.reverse().values("max_time_ms")[:1])
    ).aggregate(first=Min("first_end"), last=Max("last_end"), span=Max("span_max_ms"))
    if ends["last"] is None:
        return TenantStatistics(has_data=False)
    # What starts first ends at most one span after what ends first.
    early = Dataset.objects.filter(
        tenant__name=tenant,
        name__in=services.values("name"),
        max_time_ms__lte=ends["first"] + ends["span"],
        block__state__in=LIVE_STATES,
    )
    oldest = early.aggregate(oldest=Min("min_time_ms"))["oldest"]
    return TenantStatistics(has_data=True, oldest_ms=oldest or 0, newest_ms=ends["last"])


def unknown_tenants(tenants: Iterable[str]) -> list[str]:
    """Return those tenants of which the index never had a dataset, sorted."""
    known = TenantService.objects.filter(tenant__name__in=list(tenants)).values_list("tenant__name", flat=True)
    return sorted(set(tenants) - set(known.distinct()))


def tenant_services(tenant: str) -> list[ServiceFound]:
    """Return the services of a tenant with live data, by name. Costs a few reads per service, and opens no block."""
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
        # What starts first ends at most one span after what ends first.
        .annotate(
            oldest=Subquery(
                live.filter(max_time_ms__lte=OuterRef("early_end")).order_by("min_time_ms").values("min_time_ms")[:1]
            )
        )
        .values_list("name__name", "label_sets__label_sets", "oldest", "newest")
    )
    found: dict[str, ServiceFound] = {}
    for name, label_sets, oldest_ms, newest_ms in rows:
        if any(mask.service in ("", name) and mask.takes_all(oldest_ms, newest_ms) for mask in masks):
            continue
        sets = tuple(tuple((key, value) for key, value in labels) for labels in label_sets)
        known = found.get(name)
        found[name] = ServiceFound(
            name=name,
            oldest_ms=min(oldest_ms, known.oldest_ms) if known else oldest_ms,
            newest_ms=max(newest_ms, known.newest_ms) if known else newest_ms,
            label_sets=(*(known.label_sets if known else ()), *sets),
        )
    return sorted(found.values(), key=lambda service: service.name)


def _matching_services(query: IndexQuery) -> Iterator[_Service]:
    listed = TenantService.objects.filter(tenant__name__in=query.tenants)
    rows = list(listed.values_list("tenant_id", "name_id", "label_sets_id", "span_max_ms"))
    matching = _matching_label_sets({row[2] for row in rows}, query)
    named = _matching_names(listed, query) if query.by_name and query.matchers else set()
    for tenant_id, name_id, label_sets_id, span_max_ms in rows:
        if label_sets_id in matching or (name_id, label_sets_id) in named:
            yield _Service(
                tenant_id=tenant_id,
                name_id=name_id,
                label_sets_id=label_sets_id,
                span_max_ms=span_max_ms,
                matching=matching.get(label_sets_id, ()),
            )


def _matching_names(listed: QuerySet[TenantService], query: IndexQuery) -> set[tuple[int, int]]:
    """Return (name, label sets) of services without any label set whose name matches as if it were in one."""
    bare = listed.filter(label_sets__label_sets=[]).values_list("name_id", "label_sets_id", "name__name")
    return {
        (name_id, label_sets_id)
        for name_id, label_sets_id, name in bare
        if name and select_label_sets([((SERVICE_NAME, name),)], query.matchers)
    }


def _matching_label_sets(ids: set[int], query: IndexQuery) -> dict[int, tuple[Labels, ...]]:
    """Return the matching sets of those lists that match; without matchers even a list without sets does."""
    if not query.matchers and not query.labels:
        return dict.fromkeys(ids, ())
    found: dict[int, tuple[Labels, ...]] = {}
    for part in _parts(sorted(ids), NAMES_PER_QUERY):
        for row_id, label_sets in LabelSets.objects.filter(id__in=part).values_list("id", "label_sets"):
            sets = [tuple((name, value) for name, value in labels) for labels in label_sets]
            matching = tuple(select_label_sets(sets, query.matchers))
            if matching or not query.matchers:
                found[row_id] = matching
    return found


def _dataset_rows(services: Sequence[_Service], query: IndexQuery) -> list[tuple]:
    """Return the live datasets of these services in the range; other label sets of the same names may be among them."""
    rows: list[tuple] = []
    tenants = sorted({service.tenant_id for service in services})
    for names in _parts(sorted({service.name_id for service in services}), NAMES_PER_QUERY):
        wanted = set(names)
        span = max(service.span_max_ms for service in services if service.name_id in wanted)
        found = Dataset.objects.filter(
            tenant__in=tenants,
            name__in=names,
            max_time_ms__gte=query.start_ms,
            max_time_ms__lte=query.end_ms + span,
            min_time_ms__lte=query.end_ms,
            block__state__in=LIVE_STATES,
            block__min_time_ms__lte=query.end_ms,
            block__max_time_ms__gte=query.start_ms,
        )
        found = found[: query.datasets_max + 1 - len(rows)] if query.datasets_max else found
        rows += found.values_list(
            *("tenant_id", "name_id", "label_sets_id", "block_id", "position"),
            *("tenant__name", "name__name", "format", "min_time_ms", "max_time_ms", "size_bytes", "masks_applied"),
            *("block__ulid", "block__tenant__name", "block__shard", "block__level", "block__object_key"),
            *("block__size_bytes", "block__crc32c", "block__min_time_ms", "block__max_time_ms"),
            "block__added_command_index",
        )
        if query.datasets_max and len(rows) > query.datasets_max:
            raise QueryTooLarge("datasets", query.datasets_max)
    return rows


def _visible_rows(services: Sequence[_Service], query: IndexQuery, masks: Sequence[DeleteMask]) -> list[tuple]:
    """Return the rows that delete requests do not hide whole."""
    rows = _dataset_rows(services, query)
    if not masks:
        return rows
    return [
        row
        for row in rows
        if not any(
            mask.takes_all(row[8], row[9]) and mask.service in ("", row[6]) for mask in _masks_of(row[5:12], masks)
        )
    ]


def _masks_of(dataset: tuple, masks: Sequence[DeleteMask]) -> tuple[DeleteMask, ...]:
    """Return the masks of a dataset; to a tenant's dataset index those of every service apply."""
    tenant, name, format_number, min_time_ms, max_time_ms, _, applied = dataset
    if format_number == DATASET_INDEX:
        return tuple(mask for mask in masks if mask.tenant == tenant and mask.index > applied)
    return reading_masks(
        masks, tenant=tenant, name=name, masks_applied=applied, min_time_ms=min_time_ms, max_time_ms=max_time_ms
    )


def _tables_of_contents(rows: Iterable[tuple]) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return where the sections of these datasets are, from their blocks' metadata; not of blocks deleted since."""
    positions: dict[int, list[int]] = {}
    for row in rows:
        positions.setdefault(row[3], []).append(row[4])
    tables: dict[tuple[int, int], tuple[int, ...]] = {}
    for part in _parts(sorted(positions), BLOCKS_PER_QUERY):
        for block_id, metadata in Block.objects.filter(id__in=part).values_list("id", "metadata"):
            if not metadata:  # replaced and deleted since its rows were read
                continue
            read = read_tables_of_contents(bytes(metadata), positions[block_id])
            tables |= {(block_id, position): table for position, table in read.items()}
    return tables


def _dataset(
    position: int, row: tuple, table: tuple[int, ...], labels: tuple[Labels, ...], masks: tuple[DeleteMask, ...]
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


def _block(row_id: int, row: tuple, datasets: list[DatasetFound]) -> BlockFound:
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
