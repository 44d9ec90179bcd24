"""Blocks that recently failed alone or are quarantined; counted before more are quarantined."""

from __future__ import annotations

from collections import Counter

from django.db.models import Exists, OuterRef, Q, Subquery

from engine.lanes.profiles.jobs import KIND
from engine.schedule.model import JobState, ParkedKind
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.lanes.profiles.services.quarantine_blocks import release
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.models import Attempt, Job
from webadmin.schedule.register import BAD_OUTCOMES, LEASE_EXPIRED, is_kind, with_last_error
from webadmin.schedule.services.operation import JOBS_PER_COMMAND, OperationOutcome

COUNTED_MAX = 10_000


def single_blocks(since_ms: int, accepted_ms: int) -> Counter[str]:
    """Return, by error class, the blocks that failed alone or were quarantined since ``since_ms``.

    A block failed alone if it is the only one of a parked job. Only blocks that arrived after ``accepted_ms`` count.
    Both are command time.
    """
    failed = Attempt.objects.filter(job=OuterRef("pk"), outcome__in=BAD_OUTCOMES, ended_at_ms__gte=since_ms)
    held = Quarantine.objects.filter(job=OuterRef("pk"), released_at_ms=None, at_ms__gte=since_ms)
    owned = Block.objects.filter(state=BlockState.OWNED, owner_job=OuterRef("pk"), arrived_at_ms__gt=accepted_ms)
    parked = Job.objects.filter(Exists(owned), lane=KIND, state=JobState.PARKED, source_count=1)
    lone = with_last_error(parked).annotate(quarantined_for=Subquery(held.values("error_class")[:1]))
    lone = lone.filter(
        is_kind(ParkedKind.EVICTED) & Q(Exists(failed)) | is_kind(ParkedKind.QUARANTINED) & Q(Exists(held))
    )
    named = lone.values_list("quarantined_for", "last_error_class")[:COUNTED_MAX]
    return Counter(quarantined_for or error or LEASE_EXPIRED for quarantined_for, error in named)


def release_since(since_ms: int, context: ActionContext) -> list[OperationOutcome]:
    """Release the blocks quarantined since ``since_ms`` (command time), in commands of bounded size."""
    held = Quarantine.objects.filter(job__lane=KIND, released_at_ms=None, at_ms__gte=since_ms)
    names = list(held.order_by("id").values_list("block__ulid", flat=True))
    batches = (names[start : start + JOBS_PER_COMMAND] for start in range(0, len(names), JOBS_PER_COMMAND))
    return [release(batch, context=context) for batch in batches]
