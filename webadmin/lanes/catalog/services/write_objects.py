"""Write entries to a branch: values, conditional values, deletions of keys and of whole prefixes.

Writes use optimistic concurrency without locks. A write goes to the staging token and is valid if a second read of the
branch returns the same staging token; a write decided by reading lower layers (deletions, conditions) also needs the
same epoch. Otherwise it is tried again. A write that is refused in the end may still become visible. Writers of single
entries never block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.formats.ranges.model import Entry, StagedRecord, check_key, check_record, prefix_end
from engine.formats.ranges.object_entry import ObjectEntry
from engine.lanes.catalog.overlay import LayerInterval, LayerRow, Overlay
from engine.lanes.catalog.plan.branch import BranchRecord, Refusal, WriteTicket, is_write_valid, seal, write_ticket
from engine.lanes.catalog.state_reader import StateReader
from engine.lanes.catalog.view import View
from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.base.database.dialect import clock_ms, prepared_cursor
from webadmin.base.database.upserts import insert_new_row_if, put_rows
from webadmin.lanes.catalog.errors import BranchBusy, BranchMissing, PreconditionFailed, TooManyKeys
from webadmin.lanes.catalog.models import Repository, StagedEntry, StagedInterval
from webadmin.lanes.catalog.places import reader_of
from webadmin.lanes.catalog.services.branches import find_branch, missing
from webadmin.lanes.catalog.services.compaction.count_load import note_writes
from webadmin.lanes.catalog.services.protection import Blocked, check_allowed
from webadmin.lanes.catalog.services.records import change_record, read_record, record_named
from webadmin.lanes.catalog.services.staged_rows import DatabaseRows, base_of
from webadmin.lanes.catalog.states import Why

TRIES = 3
"""Tries of an unconditional write: only a change of the staging token causes a retry."""
DECIDING_TRIES = 10
"""Tries of a write decided by reading: each published commit or compaction causes a retry."""
KEYS_MAX = 1000

_KEYS = ("branch_id", "key", "token_id")
_COLUMNS = (*_KEYS, "identity", "payload", "generation", "written_ms")
_STAGING = "SELECT 1 FROM catalog_branch WHERE id = %s AND staging = %s"
_IS_STAGING = f"EXISTS ({_STAGING})"
_TAKE_BACK = (
    "DELETE FROM catalog_stagedentry WHERE branch_id = %s AND key = %s AND token_id = %s AND generation = %s "  # noqa: S608
    f"AND EXISTS ({_STAGING}{{lock}})"
)
_PUT = (
    "INSERT INTO catalog_stagedentry AS held (branch_id, key, token_id, identity, payload, generation, written_ms) "
    "SELECT b.id, %s, b.staging, %s, %s, 1, {now} FROM catalog_branch b WHERE b.repository_id = %s AND b.name = %s "
    "ON CONFLICT (branch_id, key, token_id) DO UPDATE SET identity = excluded.identity, payload = excluded.payload, "
    "written_ms = excluded.written_ms, generation = held.generation + 1 RETURNING branch_id, token_id"
)

Condition = Callable[[Entry | None], bool]
"""Returns whether the visible entry of a key (None: none) may be replaced."""


@dataclass(slots=True)
class WrittenRows:
    """Number of rows of one write that may exist in tokens, including those of refused and failed tries.

    While it is not zero, a commit may contain the value.
    """

    count: int = 0


def put_entry(
    repository: Repository,
    branch_name: str,
    key: bytes,
    value: ObjectEntry,
    *,
    if_absent: bool = False,
    if_match: str | None = None,
    written: WrittenRows | None = None,
) -> Entry:
    """Stage a value; ``if_match`` is the checksum of the entry that it may replace.

    ``written`` counts the rows that may contain the value, also after an error: while there are any, the value's object
    must be kept.

    Raises InvalidEntryKey, InvalidRecord, BranchMissing, RepositoryReadOnly, BranchProtected, PreconditionFailed,
    BranchBusy.
    """
    entry = Entry(key, value.identity, value.to_payload())
    written = written or WrittenRows()
    if if_absent:
        return put_if(repository, branch_name, entry, lambda found: found is None, written=written)
    if if_match is not None:
        return put_if(repository, branch_name, entry, lambda found: _checksum(found) == if_match, written=written)
    _check_entries(repository, branch_name, [entry])
    for _ in range(TRIES):
        written.count += 1
        with prepared_cursor() as cursor:
            at: list[Any] = [key, entry.identity, entry.payload, repository.pk, branch_name]
            cursor.execute(_PUT.format(now=dialect.clock_column()), at)
            rows = cursor.fetchall()
        if not rows:
            written.count -= 1
            raise BranchMissing(missing(repository, branch_name))
        branch_id, token = rows[0]
        ticket = WriteTicket(str(branch_id), str(token), 0)
        if _holds(repository, branch_name, ticket, decides=False):
            note_writes(branch_id, rows=1)
            return entry
    raise BranchBusy(f"the staging token of {branch_name} changed in each of {TRIES} tries")


def put_entries(repository: Repository, branch_name: str, entries: Iterable[Entry]) -> None:
    """Stage many values (the last of each key), a thousand per statement. Raises the errors of ``put_entry``."""
    rows = {entry.key: entry for entry in entries}
    _check_entries(repository, branch_name, rows.values())
    listed = list(rows.values())

    def write(part: Sequence[Entry]) -> None:
        _write_batch(repository, branch_name, lambda record: part, decides=False)

    for start in range(0, len(listed), KEYS_MAX):
        write(listed[start : start + KEYS_MAX])


def put_if(
    repository: Repository, branch_name: str, entry: Entry, condition: Condition, *, written: WrittenRows | None = None
) -> Entry:
    """Stage a value if the condition holds for the visible entry. Raises the errors of ``put_entry``."""
    _check_entries(repository, branch_name, [entry])
    written = written or WrittenRows()
    own: _OwnRow | None = None
    for _ in range(DECIDING_TRIES):
        record = _record(repository, branch_name)
        reading = _Reading(repository, record, [entry.key])
        below = reading.without(own) if own else reading
        if not condition(below.get(entry.key)):
            if own and own.take_back():
                written.count -= 1
            raise PreconditionFailed(f"the condition does not hold of what {branch_name} has")
        if own is None or not reading.has(own, in_staging=True):
            written.count += 1
            own = _replace(record, reading, entry)
            if own is None:
                written.count -= 1
        if own and _holds(repository, branch_name, write_ticket(record), decides=True):
            note_writes(int(record.uid), rows=1)
            return entry
    raise BranchBusy(f"others changed {branch_name} in each of {DECIDING_TRIES} tries")


def delete_entry(repository: Repository, branch_name: str, key: bytes) -> None:
    """Delete a key; a missing one is no error. Raises the errors of ``put_entry``."""
    delete_entries(repository, branch_name, [key])


def delete_entries(repository: Repository, branch_name: str, keys: Iterable[bytes]) -> None:
    """Delete up to a thousand keys, with a tombstone for each key that needs one. Raises TooManyKeys as well."""
    wanted = sorted(set(keys))
    if len(wanted) > KEYS_MAX:
        raise TooManyKeys(f"{len(wanted)} keys to delete; {KEYS_MAX} are allowed at once")
    for key in wanted:
        check_key(key)
    check_allowed(repository, branch_name, Blocked.STAGING_WRITE)

    def decide(record: BranchRecord) -> Sequence[Entry]:
        reading = _Reading(repository, record, wanted)
        return [Entry(key, b"", b"") for key in wanted if reading.view.needs_tombstone(key)]

    if wanted:
        _write_batch(repository, branch_name, decide, decides=True)


def delete_prefix(repository: Repository, branch_name: str, prefix: bytes, *, context: ActionContext) -> None:
    """Delete all keys with a prefix (all keys if it is empty), with one interval tombstone.

    The staging token is sealed with it, so that concurrent writers retry into the next token.
    """
    check_allowed(repository, branch_name, Blocked.STAGING_WRITE)
    branch = find_branch(repository, branch_name)

    def decide(record: BranchRecord | None, token: str) -> BranchRecord | Refusal:
        return Refusal.GONE if record is None else seal(record, token)

    def then(before: BranchRecord, after: BranchRecord) -> None:
        StagedInterval.objects.create(
            branch_id=branch.pk, token_id=int(before.staging), start=prefix, end=prefix_end(prefix)
        )
        entry = {"branch": branch_name, "prefix": prefix.decode("utf-8", "backslashreplace"), "why": context.why}
        record_audit(actor=context.actor, action="catalog_delete_prefix", target=str(repository), detail=entry)

    if change_record(branch.pk, decide, why=Why.INTERVAL, then=then) is Refusal.GONE:
        raise BranchMissing(missing(repository, branch_name))


def write_rows(record: BranchRecord, rows: Sequence[Entry]) -> bool:
    """Stage rows (tombstones have no identity) in a record's staging token; return False if that has changed."""
    uid, token, at_ms = int(record.uid), int(record.staging), clock_ms()
    values = [(uid, row.key, token, row.identity, row.payload, 1, at_ms) for row in rows]
    written = put_rows(
        StagedEntry, _KEYS, _COLUMNS, values, counter="generation", only_if=_IS_STAGING, values=[uid, token]
    )
    return written == len(rows)


def _write_batch(
    repository: Repository, branch_name: str, decide: Callable[[BranchRecord], Sequence[Entry]], *, decides: bool
) -> None:
    for _ in range(DECIDING_TRIES):
        record = _record(repository, branch_name)
        rows = decide(record)
        if write_rows(record, rows) and _holds(repository, branch_name, write_ticket(record), decides=decides):
            note_writes(int(record.uid), rows=len(rows), tombstones=sum(not row.identity for row in rows))
            return
    raise BranchBusy(f"others changed {branch_name} in each of {DECIDING_TRIES} tries")


def _holds(repository: Repository, branch_name: str, ticket: WriteTicket, *, decides: bool) -> bool:
    """Read the branch again and return whether the write is valid; False if the branch was deleted."""
    record = read_record(int(ticket.uid))
    if record is None and record_named(repository.pk, branch_name) is None:
        raise BranchMissing(f"{missing(repository, branch_name)} any more: it was deleted meanwhile")
    return is_write_valid(ticket, record, decides=decides)


def _record(repository: Repository, branch_name: str) -> BranchRecord:
    record = record_named(repository.pk, branch_name)
    if record is None:
        raise BranchMissing(missing(repository, branch_name))
    return record


def _check_entries(repository: Repository, branch_name: str, entries: Iterable[Entry]) -> None:
    for entry in entries:
        check_record(StagedRecord(entry.key, 1, entry.identity, entry.payload))
    check_allowed(repository, branch_name, Blocked.STAGING_WRITE)


def _checksum(entry: Entry | None) -> str | None:
    return None if entry is None else ObjectEntry.from_payload(entry.payload).checksum


class _Reading:
    """The values of some keys on a branch, in the layers of one record; two queries plus the base."""

    def __init__(self, repository: Repository, record: BranchRecord, keys: Sequence[bytes]) -> None:
        staged = DatabaseRows(int(record.uid), record.tokens)
        self._rows: dict[bytes, Sequence[LayerRow]] = dict(staged.of_keys(keys))
        self._intervals = staged.intervals()
        self._record = record
        self._reader: StateReader = reader_of(repository, base_of(repository, record))
        self.view = View(self._reader, Overlay(self))

    def get(self, key: bytes) -> Entry | None:
        """Return the visible entry."""
        return self.view.get(key)

    def of_key(self, key: bytes) -> Sequence[LayerRow]:
        return self._rows.get(key, ())

    def scan(self, start: bytes, end: bytes | None) -> Iterator[LayerRow]:
        return iter(self._rows.get(start, ()))

    def intervals(self) -> Sequence[LayerInterval]:
        return self._intervals

    def has(self, own: _OwnRow, *, in_staging: bool = False) -> bool:
        """Return whether a row of this write still exists unchanged."""
        return (not in_staging or own.token == self._record.staging) and any(
            own.token == self._record.tokens[row.layer] and row.generation == own.generation
            for row in self.of_key(own.key)
        )

    def without(self, own: _OwnRow) -> _Reading:
        """Return the reading without our own row, which must not affect our own condition."""
        if not self.has(own):
            return self
        other: _Reading = object.__new__(_Reading)
        other._intervals, other._record, other._reader = self._intervals, self._record, self._reader
        kept = [row for row in self.of_key(own.key) if self._record.tokens[row.layer] != own.token]
        if own.replaced:
            kept.append(own.replaced._replace(layer=self._record.tokens.index(own.token)))
        other._rows = {own.key: kept}
        other.view = View(self._reader, Overlay(other))
        return other


@dataclass(frozen=True, slots=True)
class _OwnRow:
    """A row of a conditional write, and the row it replaced."""

    key: bytes
    branch_id: int
    token: str
    generation: int
    replaced: LayerRow | None

    def take_back(self) -> bool:
        """Delete the row if it is unchanged and its token is still the staging token; return whether it was deleted.

        One statement, so that a seal cannot come between: rows of a sealed token are or will be in a commit. A row that
        replaced another one stays: while it is in the staging token, concurrent writers cannot undo its condition.
        """
        if self.replaced is not None:
            return False
        own: list[Any] = [self.branch_id, self.key, int(self.token), self.generation]
        with prepared_cursor() as cursor:
            cursor.execute(_TAKE_BACK.format(lock=dialect.share_lock()), [*own, self.branch_id, int(self.token)])
            return bool(cursor.rowcount)


def _replace(record: BranchRecord, reading: _Reading, entry: Entry) -> _OwnRow | None:
    """Write a value if the key is unchanged since it was read; None if it changed or the token is sealed."""
    uid, token, at_ms = int(record.uid), int(record.staging), clock_ms()
    held = next((row for row in reading.of_key(entry.key) if row.layer == 0), None)
    if held is None:
        row = (uid, entry.key, token, entry.identity, entry.payload, 1, at_ms)
        is_new = insert_new_row_if(StagedEntry, _COLUMNS, row, only_if=_IS_STAGING, values=[uid, token])
        return _OwnRow(entry.key, uid, record.staging, 1, None) if is_new else None
    done = StagedEntry.objects.filter(branch_id=uid, key=entry.key, token_id=token, generation=held.generation).update(
        identity=entry.identity, payload=entry.payload, generation=held.generation + 1, written_ms=at_ms
    )
    return _OwnRow(entry.key, uid, record.staging, held.generation + 1, held) if done else None
