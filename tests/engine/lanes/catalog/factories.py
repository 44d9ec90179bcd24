"""Small catalogs for tests: states as dictionaries, layers of changes, files in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.formats.ranges.layout import SplitRules
from engine.formats.ranges.metarange import Metarange
from engine.formats.ranges.model import Entry, Interval, Row
from engine.lanes.catalog.apply import apply_layers
from engine.lanes.catalog.files import CatalogFiles
from engine.lanes.catalog.intervals import union_of
from engine.lanes.catalog.runs import Layer, memory_run
from engine.lanes.catalog.state_reader import StateReader
from tests.memory_store import MemoryStore

SMALL = SplitRules(bytes_min=24, bytes_max=120, every=4, borders_every=4)
"""Cuts that make several ranges of a dozen entries."""

Changes = Mapping[bytes, str | None]
"""Key to the letter of its value; None deletes."""


def new_files() -> CatalogFiles:
    """A catalog in memory."""
    return CatalogFiles(MemoryStore(), "repository/")


def row(key: bytes, value: str | None, address: str = "") -> Row:
    """A row whose identity is that of its value, with an address that identity knows nothing of."""
    return (key, b"", b"") if value is None else (key, value.encode(), f"{value}@{address}".encode())


def layer(changes: Changes, intervals: Iterable[Interval] = (), address: str = "") -> Layer:
    """A token's changes."""
    rows = [row(key, value, address) for key, value in sorted(changes.items())]
    return Layer(memory_run(rows), union_of(intervals))


def state(files: CatalogFiles, values: Mapping[bytes, str], rules: SplitRules = SMALL) -> Metarange:
    """A metarange of these values."""
    empty, _ = files.write_metarange([])
    return apply_layers(files, empty, [layer(values)], rules=rules).metarange


def ranges_of(files: CatalogFiles, groups: Sequence[Iterable[bytes]], value: str = "v") -> Metarange:
    """A metarange with one range for each group of keys."""
    never = SplitRules(bytes_min=1 << 30, bytes_max=1 << 30, every=1 << 40, borders_every=1 << 20)
    return files.write_metarange(
        info for keys in groups for info in state(files, dict.fromkeys(keys, value), never).ranges
    )[0]


def values_of(files: CatalogFiles, metarange: Metarange) -> dict[bytes, str]:
    """What a metarange holds."""
    return {entry.key: entry.identity.decode() for entry in entries_of(files, metarange)}


def entries_of(files: CatalogFiles, metarange: Metarange) -> list[Entry]:
    """The entries of a metarange in order."""
    return list(StateReader(files, metarange).scan())


def applied(values: Mapping[bytes, str], layers: Sequence[tuple[Changes, Sequence[Interval]]]) -> dict[bytes, str]:
    """What layers (newest first) make of a state, by a dictionary."""
    found = dict(values)
    for changes, intervals in reversed(layers):
        for start, end in intervals:
            found = {key: value for key, value in found.items() if key < start or (end is not None and key >= end)}
        for key, value in changes.items():
            found.pop(key, None)
            if value is not None:
                found[key] = value
    return dict(sorted(found.items()))
