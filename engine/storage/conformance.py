"""Conformance checks for S3-compatible stores: whether a store has the behaviour that Lithify requires.

``check_store`` writes a few objects below ``scratch/conformance/`` and deletes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from engine.storage.model import ConditionalCreate, ObjectNotFound, ObjectStore, StorageError

STREAM_SIZE = (8 << 20) + (5 << 20) + 1
"""Bytes of the streamed object: more than one part of a multipart upload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check; ``fault`` is empty if the store has the required behaviour."""

    claim: str
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceReport:
    """The results of all checks. ``conditional_create`` is informational: correctness does not depend on it."""

    url: str
    results: tuple[CheckResult, ...]
    conditional_create: ConditionalCreate | None

    @property
    def is_conforming(self) -> bool:
        """Return whether no check failed."""
        return not any(result.fault for result in self.results)


def check_store(store: ObjectStore) -> ConformanceReport:
    """Run all checks on ``store``; scratch objects remain if the store cannot delete."""
    folder = f"scratch/conformance/{uuid4().hex}"
    results = tuple(_outcome(claim, partial(test, store, folder)) for claim, test in CHECKS)
    try:
        conditional_create = store.probe_conditional_create()
    except StorageError:
        conditional_create = None
    return ConformanceReport(url=store.url, results=results, conditional_create=conditional_create)


def _outcome(claim: str, test: Callable[[], str]) -> CheckResult:
    try:
        return CheckResult(claim=claim, fault=test())
    except StorageError as error:
        return CheckResult(claim=claim, fault=str(error))


def _reads_back(store: ObjectStore, folder: str) -> str:
    store.put(f"{folder}/small", b"0123456789")
    return "" if store.get(f"{folder}/small") == b"0123456789" else "returned different bytes"


def _reads_ranges(store: ObjectStore, folder: str) -> str:
    return "" if store.get_range(f"{folder}/small", 3, 4) == b"3456" else "returned different bytes"


def _rejects_long_ranges(store: ObjectStore, folder: str) -> str:
    try:
        data = store.get_range(f"{folder}/small", 8, 4)
    except StorageError:
        return ""
    return f"returned {len(data)} bytes instead of an error"


def _replaces(store: ObjectStore, folder: str) -> str:
    store.put(f"{folder}/small", b"replaced")
    return "" if store.get(f"{folder}/small") == b"replaced" else "returned the old bytes"


def _streams(store: ObjectStore, folder: str) -> str:
    piece = bytes(range(256)) * 4096
    with store.open_writer(f"{folder}/stream") as writer:
        for start in range(0, STREAM_SIZE, len(piece)):
            writer.write(piece[: STREAM_SIZE - start])
    if store.head(f"{folder}/stream").size != STREAM_SIZE:
        return "the object has a different size"
    end = store.get_range(f"{folder}/stream", (8 << 20) - 2, 4)
    return "" if end == piece[-2:] + piece[:2] else "returned different bytes at the boundary of two parts"


def _aborts(store: ObjectStore, folder: str) -> str:
    writer = store.open_writer(f"{folder}/aborted")
    writer.write(bytes(9 << 20))
    writer.abort()
    return _is_missing(store, f"{folder}/aborted")


def _lists(store: ObjectStore, folder: str) -> str:
    for name in ("list/b", "list/a-b", "list/a/c"):
        store.put(f"{folder}/{name}", b"x")
    names = [info.key.removeprefix(folder + "/") for info in store.list(f"{folder}/list/")]
    return "" if names == ["list/a-b", "list/a/c", "list/b"] else f"listed {names}"


def _lists_from_key(store: ObjectStore, folder: str) -> str:
    names = [info.key for info in store.list(f"{folder}/list/", start_after=f"{folder}/list/a/c")]
    return "" if names == [f"{folder}/list/b"] else f"listed {names} after list/a/c"


def _lists_folders(store: ObjectStore, folder: str) -> str:
    names = [name.removeprefix(folder + "/") for name in store.list_folders(f"{folder}/list/")]
    return "" if names == ["list/a/"] else f"listed the folders {names}"


def _deletes(store: ObjectStore, folder: str) -> str:
    for info in list(store.list(folder + "/")):
        store.delete(info.key)
    store.delete(f"{folder}/never-written")
    left = [info.key for info in store.list(folder + "/")]
    return f"{left} were not deleted" if left else _is_missing(store, f"{folder}/small")


def _is_missing(store: ObjectStore, key: str) -> str:
    try:
        store.head(key)
    except ObjectNotFound:
        return ""
    return f"{key} exists"


CHECKS: tuple[tuple[str, Callable[[ObjectStore, str], str]], ...] = (
    ("reads back what was written", _reads_back),
    ("reads a range", _reads_ranges),
    ("rejects a range beyond the end", _rejects_long_ranges),
    ("replaces an object", _replaces),
    ("streams an object in several parts", _streams),
    ("discards an aborted stream", _aborts),
    ("lists in bytewise order, consistently", _lists),
    ("lists from a start key", _lists_from_key),
    ("lists the folders of a level", _lists_folders),
    ("deletes existing and missing objects", _deletes),
)
