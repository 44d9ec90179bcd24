"""Delete old history: entries of the log, and attempts of jobs that have ended; a bounded part per run.

Both are read from the oldest on, by number, so that the cost of a run depends on what it deletes and not on what it
keeps.

Data that decisions of the schedule need is kept: entries that are not counted yet, attempts of jobs that hold blocks.
The last entry of the log is always kept, so that no index is used twice. Rows of jobs are kept while blocks refer to
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Max, QuerySet

from engine.schedule.model import HOLDING_STATES
from webadmin.base.database import dialect
from webadmin.progress.models import CountingMark
from webadmin.schedule.command_log import read_time
from webadmin.schedule.models import Attempt, Command

ROWS_PER_RUN = 1_000_000
"""More than a busy fleet writes within an hour."""
ROWS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimReport:
    """The number of rows that one run deleted."""

    commands: int = 0
    attempts: int = 0


def trim_history(*, keep_days: int) -> TrimReport:
    """Delete history that is older than ``keep_days``; 0 keeps all. Safe to repeat and to run concurrently."""
    if not keep_days:
        return TrimReport()
    return TrimReport(commands=_trim_commands(keep_days), attempts=_trim_attempts(keep_days))


def _trim_commands(keep_days: int) -> int:
    """Delete counted entries of the log; the newest of all is kept."""
    mark = CountingMark.objects.filter(id=1).first()
    last = Command.objects.aggregate(last=Max("index"))["last"]
    if mark is None or last is None:
        return 0
    first_needed = min([mark.counted_index, last, *(int(index) for index in mark.gaps)])
    before = datetime.fromtimestamp(dialect.clock_ms() / 1000, UTC) - timedelta(days=keep_days)
    rows = Command.objects.filter(index__lt=first_needed).values_list("pk", "wall_time")
    return _let_go(rows, lambda wall_time: wall_time < before)


def _trim_attempts(keep_days: int) -> int:
    """Delete attempts that ended long ago, of jobs that have ended as well."""
    before_ms = read_time().now_ms - keep_days * 24 * 3600 * 1000
    held = {state.value for state in HOLDING_STATES}
    rows = Attempt.objects.values_list("pk", "ended_at_ms", "job__state")
    return _let_go(
        rows,
        lambda ended_at_ms, _: ended_at_ms is not None and ended_at_ms < before_ms,
        lambda _, state: state not in held,
    )


def _let_go(
    rows: QuerySet[Any, Any], is_old: Callable[..., bool], may_go: Callable[..., bool] = lambda *_: True
) -> int:
    """Delete old rows that may be deleted, from the first on, until a batch contains no old ones; return how many."""
    gone, after = 0, 0
    while gone < ROWS_PER_RUN:
        part = list(rows.filter(pk__gt=after).order_by("pk")[:ROWS_AT_ONCE])
        old = [(pk, facts) for pk, *facts in part if is_old(*facts)]
        if not old:
            break
        ids = [pk for pk, facts in old if may_go(*facts)]
        rows.model.objects.filter(pk__in=ids).delete()
        gone, after = gone + len(ids), part[-1][0]
    return gone
