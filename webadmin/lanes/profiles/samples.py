"""The metrics of profile blocks on ``/metrics``: a fixed number of queries over sums and partial indexes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.db.models import Count, Min, Q, Sum

from webadmin.base.access.models import RefusalCount
from webadmin.base.access.refusals import REQUEST_PREFIX
from webadmin.base.database import dialect
from webadmin.lanes.profiles.deletion_queries import late_requests
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import (
    DeadLetter,
    DeleteRequest,
    DeleteState,
    LetterState,
    SweptTotal,
    Tombstone,
)
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.lanes.profiles.services.event_totals import GROUPS, LETTERS, OBJECTS, REPEATED, totals
from webadmin.schedule.command_log import read_time
from webadmin.schedule.lanes import Sample


def profile_samples() -> Iterator[tuple[str, list[Sample]]]:
    """Yield each metric's name with its samples."""
    yield from _queues()
    yield from _index()


def _queues() -> Iterator[tuple[str, list[Sample]]]:
    now_ms = read_time().now_ms
    rows = list(
        LevelQueue.objects.filter(block_count__gt=0)
        .order_by()
        .values("level")
        .annotate(
            queues=Count("id"),
            ready=Count("id", filter=Q(ready_at_ms__lte=now_ms)),
            block_sum=Sum("block_count"),
            bytes=Sum("byte_count"),
            oldest_ms=Min("oldest_arrival_ms"),
        )
        .order_by("level")
    )
    yield "lithify_queues", _by_level(rows, "queues")
    yield "lithify_queues_ready", _by_level(rows, "ready")
    yield "lithify_queue_blocks", _by_level(rows, "block_sum")
    yield "lithify_queue_bytes", _by_level(rows, "bytes")
    ages: list[Sample] = [((str(row["level"]),), max(0, now_ms - row["oldest_ms"]) / 1000) for row in rows]
    yield "lithify_queue_oldest_age_seconds", ages


def _by_level(rows: Iterable[Mapping[str, Any]], name: str) -> list[Sample]:
    return [((str(row["level"]),), float(row[name])) for row in rows]


def _index() -> Iterator[tuple[str, list[Sample]]]:
    now_ms, clock_ms = read_time().now_ms, dialect.clock_ms()
    causes = Quarantine.objects.filter(released_at_ms=None).order_by().values("cause").annotate(count=Count("id"))
    yield "lithify_quarantined_blocks", [((row["cause"],), row["count"]) for row in causes.order_by("cause")]
    pending = Tombstone.objects.filter(deleted_at_ms=None)
    is_due = Q(eligible_at_ms__lt=now_ms)
    sums = pending.order_by().aggregate(all=Count("id"), due=Count("id", filter=is_due), oldest=Min("eligible_at_ms"))
    yield "lithify_tombstones", [(("waiting",), sums["all"] - sums["due"]), (("due",), sums["due"])]
    yield "lithify_tombstone_oldest_due_seconds", [((), _age(sums["oldest"], now_ms))]
    hidden = DeleteRequest.objects.filter(state=DeleteState.HIDDEN)
    late = late_requests(hidden, now_ms).count()
    yield "lithify_delete_requests", [(("in_time",), hidden.count() - late), (("late",), late)]
    letters = DeadLetter.objects.filter(state=LetterState.WAITING).order_by()
    waiting = letters.aggregate(count=Count("id"), oldest=Min("written_at_ms"))
    yield "lithify_dead_letters", [((), waiting["count"])]
    yield "lithify_dead_letter_oldest_seconds", [((), _age(waiting["oldest"], clock_ms))]
    swept = SweptTotal.objects.order_by("what").values_list("what", "count")
    yield "lithify_swept_total", [((what,), count) for what, count in swept if not what.startswith(GROUPS)]
    for name, group in (
        ("lithify_dead_letter_attempts_total", LETTERS),
        ("lithify_objects_deleted_total", OBJECTS),
        ("lithify_blocks_repeated_total", REPEATED),
    ):
        yield name, [((what,), count) for what, count in totals(group).items()]
    codes = RefusalCount.objects.order_by().values("code").annotate(sum=Sum("count")).order_by("code")
    refused = [(row["code"], int(row["sum"])) for row in codes]
    blocks: list[Sample] = [((code,), count) for code, count in refused if not code.startswith(REQUEST_PREFIX)]
    yield "lithify_blocks_refused_total", blocks
    requests: list[Sample] = [
        ((code.removeprefix(REQUEST_PREFIX),), count) for code, count in refused if (code,) not in dict(blocks)
    ]
    yield "lithify_requests_refused_total", requests


def _age(since_ms: int | None, now_ms: int) -> float:
    return 0.0 if since_ms is None else max(0, now_ms - since_ms) / 1000
