"""The append-only command log: its time, its head, its entries. Only services write through this.

Command time advances with the database's clock, but from one command to the next by no less than zero and no more than
one lease. So neither a clock that jumps nor an outage of the service ends leases by itself.

Indexes are never reused, even if the database was restored to an earlier time: a process that takes the head and
detects that another run of the database server wrote the last command first continues the log beyond all indexes that
may be lost.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models import Value
from django.db.models.functions import Greatest

from engine.schedule.model import FORMAT_VERSION, JobState
from webadmin.base.database import dialect
from webadmin.base.database.columns import next_id_column, server_column
from webadmin.schedule.models import Command, Job, LogHead, PositionMark

log = logging.getLogger(__name__)

_HEAD_COLUMNS = """
       h.last_index, h.command_time_ms, h.clock_ms, h.live_job_count,
       COALESCE((SELECT c.value FROM schedule_limitchange c
                 WHERE NOT c.is_superseded AND c.name = 'lease_seconds' AND c.scope_kind = 'global'
                       AND c.scope_value = '' AND (c.valid_until_ms IS NULL OR c.valid_until_ms > h.command_time_ms)
                 ORDER BY c.id DESC LIMIT 1), l.lease_seconds)
"""
"""The head with the lease in force at its command time; hand-written SQL, because every poll starts with it."""
_MOVE_HEAD = "UPDATE schedule_loghead SET last_index = %s, command_time_ms = %s, clock_ms = %s, live_job_count = %s"
HEAD_COLUMN_COUNT = 6
"""Including the database's clock, which ``head_columns`` adds."""
HEAD_TABLES = "schedule_loghead h CROSS JOIN schedule_limits l"
_ENTRY = ("kind", "actor", "command_time_ms", "wall_time", "format_version", "change_set")

INDEX_MARGIN = 10_000_000
"""Commands of days under full load: how far a lost log may have been ahead of what is known of it."""
_RECORDED, _NOT_RECORDED, _OTHER = "same", "unknown", "other"

LEASES_AWAY = 2
"""While jobs run, each lease sees a command, and workers poll several times per lease: after this many leases without
any command the service was unavailable, and the workers could not renew their leases.
"""


class CommandTime(NamedTuple):
    """``now_ms`` is command time, ``wall_ms`` the database's clock at the same moment.

    ``is_held_back``: more than one lease has passed since the last command, so command time stops until the next one.
    ``was_away``: more than ``LEASES_AWAY`` leases have passed, so no worker has polled, or none could.
    """

    now_ms: int
    wall_ms: int
    is_held_back: bool
    was_away: bool = False


def head_columns() -> str:
    """Return the SQL columns of the head and the time."""
    return f"{_HEAD_COLUMNS}, {dialect.clock_column()}"


def read_time() -> CommandTime:
    """Return the command time that a command at this moment would have."""
    return read_head()[1]


def read_head() -> tuple[LogHead, CommandTime]:
    """Return the head of the log, without locking it, and the command time now."""
    return head_of(_head())


def take_head() -> tuple[LogHead, CommandTime]:
    """Lock the head of the log until the transaction ends; the clock is read after the lock is acquired.

    If the service was unavailable, every running job gets a full lease from now on: workers could not renew their
    leases, and get the time to do so before their jobs are reassigned.
    """
    [(server, *row)] = _take(_head_statement(_server_state()))
    held = _held(row)
    return read_head() if _continue_if_other(server) else held


def take_head_for_entry(*, commits_early: bool = False) -> tuple[LogHead, CommandTime, int]:
    """Lock the head as ``take_head`` does; also return the index of the one entry that will be written.

    ``commits_early`` is as for ``lock_row``.
    """
    statement = _head_statement(_server_state(), next_id_column(Command))
    [(server, index, *row)] = _take(statement, commits_early=commits_early)
    held = _held(row)
    if _continue_if_other(server):  # the index was reserved before
        [(index, *row)] = dialect.execute_deferred(_head_statement(next_id_column(Command)))()
        held = head_of(row)
    return (*held, int(index))


def _take(statement: str, *, commits_early: bool = False) -> list[tuple[Any, ...]]:
    assert connection.in_atomic_block, "the head is held by a transaction"
    # Each statement reads what was committed before it starts: those after the lock see the changes of its last holder.
    with dialect.pipeline():
        dialect.lock_row(LogHead, commits_early=commits_early)
        fetch = dialect.execute_deferred(statement)
    return fetch()


def _held(row: Sequence[int]) -> tuple[LogHead, CommandTime]:
    """Return the locked head; extend all leases if the service was unavailable."""
    head, time = head_of(row)
    if time.was_away:
        expires_ms = time.now_ms + row[-2] * 1000
        Job.objects.filter(state=JobState.LEASED).update(
            lease_expires_ms=Greatest("lease_expires_ms", Value(expires_ms))
        )
    return head, time


def continue_log(behind: int, *, actor: str, why: str) -> int:
    """Write an entry whose index is far above ``behind`` and above every index of this log, and begin a new epoch.

    Call it while holding the head. Return the index.

    A log grows by far less than a command per millisecond, so the time in milliseconds is above any index that a lost
    history may have issued; if the clock is wrong, ``INDEX_MARGIN`` ensures it.
    """
    head, time = read_head()
    last = Command.objects.order_by("-index").values_list("index", flat=True).first() or head.last_index
    first = max(behind + INDEX_MARGIN, last + 1, time.wall_ms)
    detail = {"behind": behind, "why": why}
    write_command(kind=Command.Kind.ADVANCE_CLOCK, actor=actor, time=time, change_set=detail, index=first)
    dialect.continue_ids(Command, "index", first)
    move_head(first, time, live_jobs=head.live_job_count)
    PositionMark.objects.update(epoch="")  # the next position begins a new epoch
    return first


def _continue_if_other(server: str) -> bool:
    """Continue the log if another run of the database server wrote the last command, and record this run.

    Return whether the log was continued.
    """
    if server == _RECORDED:
        return False
    if server == _OTHER:
        last = Command.objects.order_by("-index").values_list("index", flat=True).first() or 0
        index = continue_log(last, actor="service", why="the database server was restarted, restored or replaced")
        log.warning("log_continued index=%d last=%d reason=another run of the database server", index, last)
    with dialect.prepared_cursor() as cursor:
        cursor.execute(f"UPDATE schedule_loghead SET server = {server_column()}")  # noqa: S608
    return server == _OTHER


def _is_server_known() -> bool:
    """Return whether the database identifies the runs of its server: SQLite does not."""
    return dialect.is_postgresql()


def _server_state() -> str:
    """Return a SQL column that compares the run of the server with the one of the last command."""
    if not _is_server_known():
        return f"'{_RECORDED}'"
    return f"CASE h.server WHEN '' THEN '{_NOT_RECORDED}' WHEN {server_column()} THEN '{_RECORDED}' ELSE '{_OTHER}' END"


def move_head(index: int, time: CommandTime, *, live_jobs: int) -> None:
    """Make ``index`` the last command; ``live_jobs`` is the new number of waiting, blocked and leased jobs."""
    with dialect.prepared_cursor() as cursor:
        cursor.execute(_MOVE_HEAD, [index, time.now_ms, time.wall_ms, live_jobs])


def write_command(
    *, kind: Command.Kind, actor: str, time: CommandTime, change_set: dict[str, Any], index: int | None = None
) -> int:
    """Append an entry and return its index; ``index`` is one that was reserved under the head."""
    wall_time = dialect.time_value(datetime.fromtimestamp(time.wall_ms / 1000, UTC))
    row = (kind.value, actor, time.now_ms, wall_time, FORMAT_VERSION, json.dumps(change_set))
    if index is not None:
        dialect.insert_rows(Command, ("index", *_ENTRY), [(index, *row)])
        return index
    [index] = dialect.insert_and_number(Command, _ENTRY, [row], number="index", key="kind").values()
    return index


def advance_clock(*, actor: str) -> int | None:
    """Write a command that only advances command time, if it is held back; return its index.

    For processes that wait for command time to pass while no other command is written.
    """
    with transaction.atomic(durable=True):
        head, time = take_head()
        if not time.is_held_back:  # another process has written a command
            return None
        index = write_command(kind=Command.Kind.ADVANCE_CLOCK, actor=actor, time=time, change_set={})
        move_head(index, time, live_jobs=head.live_job_count)
    return index


def head_of(row: Sequence[int]) -> tuple[LogHead, CommandTime]:
    """Return the head from the values of ``head_columns``, and the command time at that moment."""
    if row[2] == 0:
        # Command time was never read: it is initialised once with wall time, so that it cannot go back afterwards.
        LogHead.objects.filter(clock_ms=0).update(clock_ms=row[-1], command_time_ms=row[-1])
        row = _head()
    last_index, command_time_ms, clock_ms, live_job_count, lease_seconds, wall_ms = row
    head = LogHead(
        last_index=last_index, command_time_ms=command_time_ms, clock_ms=clock_ms, live_job_count=live_job_count
    )
    passed, lease_ms = wall_ms - clock_ms, lease_seconds * 1000
    return head, CommandTime(
        now_ms=command_time_ms + min(max(passed, 0), lease_ms),
        wall_ms=wall_ms,
        is_held_back=not 0 <= passed < lease_ms,
        was_away=passed > LEASES_AWAY * lease_ms,
    )


def _head() -> tuple[int, ...]:
    [row] = dialect.execute_deferred(_head_statement())()
    return row


def _head_statement(*others: str) -> str:
    return f"SELECT {', '.join((*others, head_columns()))} FROM {HEAD_TABLES}"  # noqa: S608
