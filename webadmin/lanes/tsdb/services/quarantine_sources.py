"""Quarantine bad source blocks with their errors, and release them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import F, Q

from engine.core.errors import BadObject
from engine.lanes.tsdb.jobs import KIND
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.models import REASON_MAX, Block, BlockQuarantine, BucketTenant, Group, OutboxStep
from webadmin.lanes.tsdb.services.dissolve_groups import dissolve_groups, jobs_of
from webadmin.lanes.tsdb.states import BlockState, GroupState, StepKind
from webadmin.schedule.errors import FilterEmpty
from webadmin.schedule.isolation_stops import FoundBad
from webadmin.schedule.models import Job
from webadmin.schedule.register import NAMES_MAX
from webadmin.schedule.services.operation import OperationOutcome, operation
from webadmin.schedule.services.stop_isolation import isolation_stop_reason

MARKED_BY = "Lithify cannot read it"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadSource:
    """A bad source of a group; ``error`` names the file and the offset."""

    block: Block
    error: BadObject


def quarantine_sources(group: Group, job: Job, bad: Sequence[BadSource], context: ActionContext) -> list[BadSource]:
    """Quarantine these sources of an open group and dissolve the group, in one command; return the quarantined ones.

    The outbox writes the no-compact marks. Changes nothing if the group is no longer open, or if too many sources are
    bad: that indicates a fault of the store, and an operator decides.
    """
    found = [FoundBad(type(one.error).__name__, one.block.found_at_ms) for one in bad]
    if isolation_stop_reason(KIND, place_of(group.tenant), found, context):
        return []
    with operation() as run:
        if not Group.objects.filter(id=group.id, state=GroupState.OPEN).exists():
            return []
        names = [one.name for one in jobs_of([group])]
        first = bad[0].block.ulid
        run.write(
            "quarantine_sources",
            context,
            target=first if len(bad) == 1 else f"{len(bad)} blocks",
            detail={"jobs": names, "blocks": [one.block.ulid for one in bad], "group": group.id},
        )
        dissolve_groups(run, [group], because=f"its source {first} cannot be read")
        now_ms = dialect.clock_ms()
        for one in bad:
            _keep_out(one, job, run.index, now_ms)
    return list(bad)


def _keep_out(one: BadSource, job: Job, command_index: int, now_ms: int) -> None:
    error, block = one.error, one.block
    reason = f"{type(error).__name__}: {error}"[:REASON_MAX]
    Block.objects.filter(id=block.id, state=BlockState.LIVE).update(quarantined=reason)
    BlockQuarantine.objects.create(
        block=block,
        job=job,
        error_class=type(error).__name__,
        message=error.reason,
        file=error.section[:100],
        offset=error.offset,
        at_ms=now_ms,
        command_index=command_index,
    )
    OutboxStep.objects.create(
        tenant_id=block.tenant_id,
        block=block,
        kind=StepKind.MARK_NO_COMPACT,
        detail=f"{MARKED_BY}: {reason}"[:REASON_MAX],
        created_at_ms=now_ms,
    )
    BucketTenant.objects.filter(id=block.tenant_id).update(index_wanted=F("index_wanted") + 1)


def sources_kept_out(place: str, since_ms: int, accepted_ms: int) -> Counter[str]:
    """Return the number of a tenant's sources quarantined since ``since_ms``, by error class.

    Counts only sources found after ``accepted_ms``. Both are wall time.
    """
    held = BlockQuarantine.objects.filter(of_place(place, "block__tenant"), released_at_ms=None, at_ms__gte=since_ms)
    return Counter(held.filter(block__found_at_ms__gt=accepted_ms).values_list("error_class", flat=True))


def place_of(tenant: BucketTenant) -> str:
    """Return the name of the tenant's quarantine stop."""
    return f"{tenant.bucket.name}/{tenant.name}"


def of_place(place: str, tenant: str) -> Q:
    """Return the condition that the tenant at the lookup path ``tenant`` has this name."""
    bucket, _, name = place.partition("/")
    return Q(**{f"{tenant}__bucket__name": bucket, f"{tenant}__name": name})


def release_since(place: str, since_ms: int, context: ActionContext) -> list[OperationOutcome]:
    """Release the sources quarantined since ``since_ms`` (wall time), in commands of bounded size."""
    held = BlockQuarantine.objects.filter(of_place(place, "block__tenant"), released_at_ms=None, at_ms__gte=since_ms)
    ids = list(held.order_by("id").values_list("block__ulid", flat=True))
    return [release_sources(ids[at : at + NAMES_MAX], context=context) for at in range(0, len(ids), NAMES_MAX)]


def release_sources(blocks: Sequence[str], *, everything: bool = False, context: ActionContext) -> OperationOutcome:
    """Release quarantined blocks, given by ULID, for planning and remove their no-compact marks.

    Raises FilterEmpty.
    """
    if not blocks and not everything:
        raise FilterEmpty("name blocks, or say that all are meant")
    if len(blocks) > NAMES_MAX:
        raise FilterEmpty(f"{len(blocks)} blocks: at most {NAMES_MAX} at once")
    held = BlockQuarantine.objects.filter(released_at_ms=None).select_related("block").order_by("id")
    held = held if everything else held.filter(block__ulid__in=blocks)
    found = [row.block.ulid for row in held]
    left = tuple((ulid, "it is not in quarantine") for ulid in sorted(set(blocks) - set(found)))
    if context.is_dry_run or not found:
        return OperationOutcome(
            action="release_sources", is_dry_run=context.is_dry_run, changed=tuple(found), left=left
        )
    with operation() as run:
        rows = list(held)
        run.write("release_sources", context, target=f"{len(rows)} blocks", detail={"blocks": found})
        _release_sources(rows, context)
    return OperationOutcome(
        action="release_sources", is_dry_run=False, changed=tuple(found), left=left, command_indexes=(run.index,)
    )


def _release_sources(rows: Sequence[BlockQuarantine], context: ActionContext) -> None:
    now_ms = dialect.clock_ms()
    BlockQuarantine.objects.filter(id__in=[row.id for row in rows]).update(
        released_at_ms=now_ms, released_by=context.actor[:150], release_why=context.why[:REASON_MAX]
    )
    Block.objects.filter(id__in=[row.block_id for row in rows]).update(quarantined="", no_compact="")
    OutboxStep.objects.bulk_create(
        OutboxStep(
            tenant_id=row.block.tenant_id, block=row.block, kind=StepKind.UNMARK_NO_COMPACT, created_at_ms=now_ms
        )
        for row in rows
    )
    tenants = {row.block.tenant_id for row in rows}
    BucketTenant.objects.filter(id__in=tenants).update(plan_at_ms=0, index_wanted=F("index_wanted") + 1)
