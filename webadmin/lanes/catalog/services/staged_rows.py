"""Read the staged rows of a branch for the engine, and merge all sealed tokens into one layer.

Rows of all tokens are stored in key order, so each read is one query (or one for some thousand rows), however many
tokens there are. ``one_snapshot`` around record and rows reads both in one snapshot: concurrent changes cannot hide
rows, and no check of the epoch is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from operator import itemgetter

from engine.formats.ranges.model import IntervalTombstone
from engine.lanes.catalog.overlay import LayerInterval, LayerRow, Overlay
from engine.lanes.catalog.plan.branch import BaseVersion, BranchRecord
from engine.lanes.catalog.runs import Layer, spooled_run
from engine.lanes.catalog.view import View
from webadmin.base.database.dialect import among, one_snapshot, read_rows, request_rows
from webadmin.lanes.catalog.models import Commit, Repository, StagedEntry, StagedInterval
from webadmin.lanes.catalog.places import reader_of

ROWS_AT_FIRST = 128
ROWS_AT_ONCE = 8192
HIDES_ALL = 1 << 62
"""The generation of every interval: its token was sealed with it, so all rows of the token are older."""

_COLUMNS = ("key", "token_id", "generation", "identity", "payload")


class DatabaseRows:
    """The rows of some tokens (newest first) of a branch. Database errors are not caught."""

    def __init__(self, branch_id: int, tokens: Iterable[str]) -> None:
        self._branch_id = branch_id
        self._layers = {int(token): number for number, token in enumerate(tokens)}

    def of_key(self, key: bytes) -> Sequence[LayerRow]:
        """Return the rows of a key; one query."""
        return self.of_keys([key]).get(key, ())

    def of_keys(self, keys: Collection[bytes]) -> dict[bytes, list[LayerRow]]:
        """Return the rows of several keys (at least one); one query."""
        wanted, values = among(StagedEntry, "key", keys)
        found: dict[bytes, list[LayerRow]] = {}
        for row in self._layered(
            read_rows(StagedEntry, _COLUMNS, f"WHERE branch_id = %s AND {wanted}", [self._branch_id, *values])
        ):
            found.setdefault(row.key, []).append(row)
        return found

    def scan(self, start: bytes, end: bytes | None) -> Iterator[LayerRow]:
        """Yield rows by key and layer, some thousand per query."""
        if not self._layers:
            return
        for _, rows in groupby(self._layered(self._read(start, end)), key=itemgetter(0)):
            group = list(rows)
            yield from group if len(group) == 1 else sorted(group, key=itemgetter(1))

    def intervals(self) -> Sequence[LayerInterval]:
        """Return all interval tombstones; one query."""
        rows = read_rows(StagedInterval, ("token_id", "start", "end"), "WHERE branch_id = %s", [self._branch_id])
        return [
            LayerInterval(layer, IntervalTombstone(start, end, HIDES_ALL))
            for token, start, end in rows
            if (layer := self._layers.get(token)) is not None
        ]

    def _layered(self, rows: Iterable[tuple[bytes, int, int, bytes, bytes]]) -> Iterator[LayerRow]:
        """Skip rows of tokens that the record does not name."""
        for key, token, generation, identity, payload in rows:
            layer = self._layers.get(token)
            if layer is not None:
                yield LayerRow(key, layer, generation, identity, payload)

    def _read(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, int, int, bytes, bytes]]:
        after, amount = (start, -1), ROWS_AT_FIRST
        until, ends = ("AND key < %s ", [end]) if end is not None else ("", [])
        rest = f"WHERE branch_id = %s AND (key, token_id) > (%s, %s) {until}ORDER BY key, token_id LIMIT %s"
        while True:
            fetch = request_rows(StagedEntry, _COLUMNS, rest, [self._branch_id, *after, *ends, amount])
            rows = fetch()
            yield from rows
            if len(rows) < amount:
                return
            after, amount = (rows[-1][0], rows[-1][1]), min(4 * amount, ROWS_AT_ONCE)


def overlay_of(record: BranchRecord, tokens: Sequence[str] | None = None) -> Overlay:
    """Return the overlay of the tokens of a record (default: all)."""
    return Overlay(DatabaseRows(int(record.uid), record.tokens if tokens is None else tokens))


def metarange_of_commit(repository: Repository, commit_id: str) -> str:
    """Return the metarange of an existing commit."""
    found = Commit.objects.filter(repository=repository, commit_id=commit_id)
    return found.values_list("metarange", flat=True).get()


def base_of(repository: Repository, base_version: BaseVersion | BranchRecord) -> str:
    """Return the metarange below the staged rows: the snapshot, or that of the head."""
    return base_version.snapshot or metarange_of_commit(repository, base_version.head)


def view_of(repository: Repository, record: BranchRecord) -> View:
    """Return the visible state of a branch; use it in the ``one_snapshot`` in which the record was read."""
    return View(reader_of(repository, base_of(repository, record)), overlay_of(record))


@contextmanager
def basis_layer(base_version: BaseVersion) -> Iterator[Layer | None]:
    """Yield the sealed rows of a base version as one layer, spooled to disk above a limit; None if there are none.

    Commits and compactions build from it, so both create the same files.
    """
    with ExitStack() as stack:
        with one_snapshot():
            overlay = Overlay(DatabaseRows(int(base_version.uid), base_version.sealed))
            run = stack.enter_context(spooled_run(overlay.scan(), name=f"staged rows of branch {base_version.uid}"))
        yield Layer(run, overlay.covered) if run.info.rows or overlay.covered else None
