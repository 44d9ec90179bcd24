"""Wall time of events in command time, for pages and answers.

Command time stops while no command is written, so it falls behind wall time by the idle time of the service. A moment
whose command is still in the log is converted exactly; others by the present lag of command time, as if it had never
stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from django.db.models import BigIntegerField, OuterRef, QuerySet, Subquery, Value

from webadmin.schedule.command_log import read_time
from webadmin.schedule.models import Command


@dataclass(frozen=True, slots=True, kw_only=True)
class WallTimes:
    """Convert command time; ``wall_ms_of_command`` holds the commands whose wall time is known."""

    now_ms: int
    wall_ms: int
    wall_ms_of_command: Mapping[int, int]

    def of(self, ms: int, command_index: int | None = None) -> int:
        """Return the wall time of a moment, exactly if its command is given and known."""
        known = None if command_index is None else self.wall_ms_of_command.get(command_index)
        return ms + self.wall_ms - self.now_ms if known is None else known


def wall_times(command_indexes: Iterable[int] = ()) -> WallTimes:
    """Read the clock, and the wall time of these commands: at most two queries."""
    time, indexes = read_time(), set(command_indexes)
    rows = Command.objects.filter(index__in=indexes).values_list("index", "wall_time") if indexes else ()
    known = {index: int(wall_time.timestamp() * 1000) for index, wall_time in rows}
    return WallTimes(now_ms=time.now_ms, wall_ms=time.wall_ms, wall_ms_of_command=known)


class NowColumns(TypedDict):
    """The column that ``with_now`` adds."""

    now_ms: int


class WallTimeColumns(NowColumns):
    """The columns that ``with_wall_times`` adds."""

    wall_ms: int
    commanded_at: datetime | None


def with_wall_times(rows: QuerySet[Any], *, command: str = "command_index") -> QuerySet[Any]:
    """Annotate each row with command time and wall time now, and the wall time of the command in this column."""
    time = read_time()
    entry = Command.objects.filter(index=OuterRef(command)).values("wall_time")[:1]
    found: QuerySet[Any] = rows.annotate(
        now_ms=Value(time.now_ms, BigIntegerField()),
        wall_ms=Value(time.wall_ms, BigIntegerField()),
        commanded_at=Subquery(entry),
    )
    return found


def commanded_ms(row: Any, ms: int) -> int:
    """Return the wall time of the row's command, whose command time is ``ms``; the row is of ``with_wall_times``."""
    return ms + row.wall_ms - row.now_ms if row.commanded_at is None else int(row.commanded_at.timestamp() * 1000)
