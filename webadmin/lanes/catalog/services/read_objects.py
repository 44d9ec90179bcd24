"""Read entries: single keys and listings, on a branch with its staged rows, elsewhere as committed.

A point read on a branch is one statement, however many sealed tokens there are: record, rows and intervals are of one
snapshot, so concurrent changes of the record neither hide rows nor show them twice. A page of a listing is read in one
snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.formats.ranges.model import Entry, IntervalTombstone, check_key
from engine.lanes.catalog.overlay import LayerInterval, LayerRow, Overlay
from engine.lanes.catalog.view import Page, View
from webadmin.base.database.dialect import execute_deferred, one_snapshot
from webadmin.lanes.catalog.errors import BranchMissing, EntryMissing
from webadmin.lanes.catalog.models import Repository
from webadmin.lanes.catalog.places import reader_of
from webadmin.lanes.catalog.services.branches import missing
from webadmin.lanes.catalog.services.compaction.count_load import note_listing
from webadmin.lanes.catalog.services.pages import checked_amount
from webadmin.lanes.catalog.services.records import record_named
from webadmin.lanes.catalog.services.refs import resolve
from webadmin.lanes.catalog.services.staged_rows import HIDES_ALL, view_of

_LAYERS = "catalog_branchtoken t ON t.id = {}.token_id AND t.state <> 'retired'"
_BRANCH = "catalog_branch b JOIN catalog_commit c ON c.repository_id = b.repository_id AND c.commit_id = b.head "
_POINT = (
    "SELECT b.id, COALESCE(b.snapshot, c.metarange), t.position, 0 AS kind, s.generation, s.identity, s.payload "  # noqa: S608
    f"FROM {_BRANCH} LEFT JOIN (catalog_stagedentry s JOIN {_LAYERS.format('s')}) ON s.branch_id = b.id AND s.key = %s "
    "WHERE b.repository_id = %s AND b.name = %s "
    "UNION ALL "
    "SELECT b.id, COALESCE(b.snapshot, c.metarange), t.position, 1, 0, i.start, i.start "
    f"FROM {_BRANCH} JOIN catalog_stagedinterval i ON i.branch_id = b.id JOIN {_LAYERS.format('i')} "
    'WHERE b.repository_id = %s AND b.name = %s AND i.start <= %s AND (i."end" IS NULL OR i."end" > %s)'
)
"""Query for the staged rows of a key with the positions of their layers, and the intervals that cover it."""


@dataclass(frozen=True, slots=True)
class KeyRows:
    """The staged rows of one key and the intervals that cover it; implements ``StagedRows`` for this key only."""

    base: str
    rows: Sequence[LayerRow]
    covering: Sequence[LayerInterval]

    def of_key(self, key: bytes) -> Sequence[LayerRow]:
        return self.rows

    def scan(self, start: bytes, end: bytes | None) -> Iterator[LayerRow]:
        return iter(self.rows)

    def intervals(self) -> Sequence[LayerInterval]:
        return self.covering


def get_entry(repository: Repository, ref: str, key: bytes) -> Entry:
    """Return the entry of a key. Raises InvalidEntryKey, EntryMissing, RefMissing, RefRefused, BadObject."""
    check_key(key)
    staged = rows_of_key(repository, ref, key)
    if staged is not None:
        view = View(reader_of(repository, staged.base), Overlay(staged))
    else:
        resolved = resolve(repository, ref)
        view = View(reader_of(repository, resolved.commit.metarange))
    entry = view.get(key)
    if entry is None:
        raise EntryMissing(f"{ref} has no entry {key.decode('utf-8', 'backslashreplace')!r}")
    return entry


def list_entries(
    repository: Repository,
    ref: str,
    *,
    prefix: bytes = b"",
    after: bytes = b"",
    delimiter: bytes = b"",
    amount: int = 1000,
) -> Page:
    """Return a page of entries and, with a delimiter, of common prefixes. Raises RefMissing, RefRefused, BadObject."""
    checked_amount(amount)
    resolved = resolve(repository, ref)
    listing = {"prefix": prefix, "after": after, "delimiter": delimiter}
    if resolved.branch is None:
        reader = reader_of(repository, resolved.commit.metarange)
        return View(reader).list_page(**listing, amount=amount)
    with one_snapshot():
        record = record_named(repository.pk, resolved.branch.name)
        if record is None:
            raise BranchMissing(missing(repository, resolved.branch.name))
        page = view_of(repository, record).list_page(**listing, amount=amount)
    note_listing(int(record.uid), page)
    return page


def rows_of_key(repository: Repository, branch_name: str, key: bytes) -> KeyRows | None:
    """Return the staged rows of a key on a branch, None if there is no such branch; one statement."""
    named = (repository.pk, branch_name)
    found = execute_deferred(_POINT, [key, *named, *named, key, key])()
    if not found:
        return None
    rows, covering = [], []
    for _, _, position, kind, generation, identity, payload in found:
        if position is None:
            continue
        if kind:
            covering.append(LayerInterval(-position, IntervalTombstone(key, key + b"\0", HIDES_ALL)))
        else:
            rows.append(LayerRow(key, -position, generation, identity, payload))
    return KeyRows(found[0][1], rows, covering)
