"""Delete masks: the delete requests that merges must apply and readers must respect, by dataset.

A request applies to a dataset of its tenant and service whose time it overlaps and whose bytes do not obey it yet: the
dataset's ``masks_applied`` is below the request's command index. Data accepted later starts above it. A merge that was
assigned before a request leaves a result with the older watermark, so that data it brings back is never shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from django.db.models import Q, QuerySet

from engine.formats.profile_block.model import DATASET_PROFILES
from engine.lanes.profiles.jobs import DeleteMask
from webadmin.lanes.profiles.models import Dataset, DeleteRequest, DeleteState
from webadmin.lanes.profiles.states import BlockState

DatasetKey = tuple[str, str]
BLOCKS_PER_QUERY = 500
HIDING = (
    "EXISTS (SELECT 1 FROM profiles_deleterequest "  # noqa: S608  (no external input)
    f"WHERE state = '{DeleteState.HIDDEN.value}' AND command_index < %s)"
)
"""Column of a statement that reads a job's sources: whether there are delete requests before a command."""


@dataclass(slots=True, kw_only=True)
class JobMasks:
    """The masks that the merge of a job must apply. ``applied`` is the watermark of each of its sources by row id."""

    masks: set[DeleteMask] = field(default_factory=set)
    masked: set[DatasetKey] = field(default_factory=set)
    applied: dict[int, int] = field(default_factory=dict)

    def in_order(self) -> tuple[DeleteMask, ...]:
        """Return the masks by the index of their command."""
        return tuple(sorted(self.masks, key=lambda mask: mask.index))

    @property
    def indexes(self) -> frozenset[int]:
        return frozenset(mask.index for mask in self.masks)


def read_masks(tenants: Collection[str] | None = None, *, before: int | None = None) -> tuple[DeleteMask, ...]:
    """Return the requests that still hide data, of these tenants or all, by command index; one query.

    A reader reads them once, before the index, and applies to each dataset those that ``reading_masks`` returns.
    """
    requests = DeleteRequest.objects.filter(state=DeleteState.HIDDEN).select_related("tenant")
    if tenants is not None:
        requests = requests.filter(tenant__name__in=tenants)
    if before is not None:
        requests = requests.filter(command_index__lt=before)
    return tuple(mask_of(request) for request in requests.order_by("command_index"))


def reading_masks(
    masks: Iterable[DeleteMask], *, tenant: str, name: str, masks_applied: int, min_time_ms: int, max_time_ms: int
) -> tuple[DeleteMask, ...]:
    """Return the masks whose rows a reader of this dataset must leave out; one with ``is_total`` leaves out all rows.

    Rows are selected by ``engine.lanes.profiles.merge.masks``, for readers as for merges.
    """
    return tuple(
        mask
        for mask in masks
        if mask.tenant == tenant
        and mask.service in ("", name)
        and mask.index > masks_applied
        and (mask.from_ms is None or max_time_ms == 0 or max_time_ms >= mask.from_ms)
        and (mask.until_ms is None or min_time_ms < mask.until_ms)
    )


def visible_datasets(blocks: Collection[int]) -> dict[int, dict[int, tuple[DeleteMask, ...]]]:
    """Return the readable datasets of blocks (row ids) by position, each with its masks.

    Datasets dropped by retention or taken whole by a mask are not included.
    """
    masks = read_masks()  # before the rows: a request done in between was rewritten
    found: dict[int, dict[int, tuple[DeleteMask, ...]]] = {block_id: {} for block_id in blocks}
    ids = sorted(blocks)
    for part in (ids[start : start + BLOCKS_PER_QUERY] for start in range(0, len(ids), BLOCKS_PER_QUERY)):
        rows = Dataset.objects.filter(block__in=part).values_list(
            *("block_id", "position", "tenant__name", "name__name", "masks_applied", "min_time_ms", "max_time_ms")
        )
        for block_id, position, tenant, name, applied, min_time_ms, max_time_ms in rows:
            own = reading_masks(
                masks, tenant=tenant, name=name, masks_applied=applied, min_time_ms=min_time_ms, max_time_ms=max_time_ms
            )
            if not any(mask.takes_all(min_time_ms, max_time_ms) for mask in own):
                found[block_id][position] = own
    return found


def mask_of(request: DeleteRequest) -> DeleteMask:
    """Return a request as a mask for merges and readers."""
    return DeleteMask(
        index=request.command_index,
        tenant=request.tenant.name,
        service=request.service,
        selector=request.selector,
        from_ms=request.from_ms,
        until_ms=request.until_ms,
    )


def concerned(mask: DeleteMask) -> QuerySet[Dataset]:
    """Return the profile datasets, of live and of removed blocks, to which a request applies."""
    found = Dataset.objects.filter(tenant__name=mask.tenant, format=DATASET_PROFILES, masks_applied__lt=mask.index)
    if mask.service:
        found = found.filter(name__name=mask.service)
    if mask.from_ms is not None:
        found = found.filter(Q(max_time_ms__gte=mask.from_ms) | Q(max_time_ms=0))
    if mask.until_ms is not None:
        found = found.filter(min_time_ms__lt=mask.until_ms)
    return found


def job_masks(fences: Mapping[int, int], *, is_hiding: bool) -> dict[int, JobMasks]:
    """Return the masks of jobs (row id to fencing token) that were requested before the job was assigned.

    ``is_hiding`` is whether there are any (``HIDING``): usually there are none, and every poll with jobs calls this.

    The result is the same when the job's result arrives: a request that applies to a source cannot be done before that.
    """
    found: defaultdict[int, JobMasks] = defaultdict(JobMasks)
    if not is_hiding:
        return found
    masks = read_masks(before=max(fences.values(), default=0))
    datasets = Dataset.objects.filter(
        block__owner_job__in=fences, block__state=BlockState.OWNED, format=DATASET_PROFILES
    )
    rows = datasets.values_list(
        *("block__owner_job_id", "block_id", "masks_applied"),
        *("tenant__name", "name__name", "min_time_ms", "max_time_ms"),
    )
    for job_id, block_id, applied, tenant, name, min_time_ms, max_time_ms in rows:
        own = found[job_id]
        own.applied[block_id] = min(applied, own.applied.get(block_id, applied))
        earlier = (mask for mask in masks if mask.index < fences[job_id])
        about = reading_masks(
            earlier, tenant=tenant, name=name, masks_applied=applied, min_time_ms=min_time_ms, max_time_ms=max_time_ms
        )
        own.masks.update(about)
        if about:
            own.masked.add((tenant, name))
    return found
