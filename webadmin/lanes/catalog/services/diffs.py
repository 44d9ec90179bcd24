"""Paged diffs: uncommitted changes, changes between two commits, and the result of a merge.

The diff of two states never changes, so short ones are cached: pages, and the check whether a branch is clean, are
served from memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from engine.formats.ranges.model import prefix_end
from engine.lanes.catalog.diff import Change, diff_states, diff_uncommitted
from engine.lanes.catalog.overlay import Overlay
from engine.lanes.catalog.plan.branch import BranchRecord
from engine.lanes.catalog.state_reader import StateReader
from engine.lanes.catalog.three_way import Compared, compare
from engine.lanes.catalog.view import CommonPrefix
from engine.storage.section_cache import SectionCache
from webadmin.base.database.dialect import one_snapshot
from webadmin.lanes.catalog.errors import BranchMissing
from webadmin.lanes.catalog.models import Commit, Repository
from webadmin.lanes.catalog.places import reader_of
from webadmin.lanes.catalog.services.branches import missing
from webadmin.lanes.catalog.services.commits import merge_base
from webadmin.lanes.catalog.services.pages import checked_amount
from webadmin.lanes.catalog.services.records import record_named
from webadmin.lanes.catalog.services.refs import commit_at
from webadmin.lanes.catalog.services.staged_rows import metarange_of_commit, overlay_of

CHANGES_KEPT = 10_000
"""Maximum number of keys in a cached diff of two states."""
CACHE_BYTES = 64 << 20
CHANGE_BYTES = 400

_cache = SectionCache(CACHE_BYTES)

Difference = Change | Compared
Seek = Callable[[bytes], Iterator[Difference]]
"""Yields the differences from a key on."""


@dataclass(frozen=True, slots=True)
class DiffPage:
    """A page of a diff in key order; ``after`` is the key after which the next page starts, None on the last page."""

    items: tuple[Difference | CommonPrefix, ...]
    after: bytes | None


def diff_branch(
    repository: Repository,
    branch_name: str,
    *,
    prefix: bytes = b"",
    after: bytes = b"",
    delimiter: bytes = b"",
    amount: int = 1000,
) -> DiffPage:
    """Return the diff of a branch's visible state against its head. Raises BranchMissing, BadObject."""
    checked_amount(amount)
    with one_snapshot():
        record = record_named(repository.pk, branch_name)
        if record is None:
            raise BranchMissing(missing(repository, branch_name))

        def seek(start: bytes) -> Iterator[Difference]:
            return uncommitted(repository, record, overlay_of(record), start, prefix_end(prefix))

        return _page(seek, prefix, after, delimiter, amount)


def diff_refs(
    repository: Repository,
    left_ref: str,
    right_ref: str,
    *,
    prefix: bytes = b"",
    after: bytes = b"",
    delimiter: bytes = b"",
    amount: int = 1000,
) -> DiffPage:
    """Return the diff from the left commit to the right one. Raises RefMissing, RefRefused, BadObject."""
    checked_amount(amount)
    left, right = (reader_of(repository, commit_at(repository, ref).metarange) for ref in (left_ref, right_ref))

    def seek(start: bytes) -> Iterator[Difference]:
        return iter(kept_differences(left, right, start, prefix_end(prefix)))

    return _page(seek, prefix, after, delimiter, amount)


def compare_refs(
    repository: Repository,
    left_ref: str,
    right_ref: str,
    *,
    prefix: bytes = b"",
    after: bytes = b"",
    delimiter: bytes = b"",
    amount: int = 1000,
) -> DiffPage:
    """Return the changes and conflicts of a merge of the right commit into the left one.

    Raises RefMissing, RefRefused, BadObject.
    """
    checked_amount(amount)
    commits = [commit_at(repository, ref) for ref in (left_ref, right_ref)]
    left, right = (reader_of(repository, commit.metarange) for commit in commits)
    base = base_reader(repository, *commits)

    def seek(start: bytes) -> Iterator[Difference]:
        return compare(left, right, base, start, prefix_end(prefix))

    return _page(seek, prefix, after, delimiter, amount)


def base_reader(repository: Repository, left: Commit, right: Commit) -> StateReader:
    """Return the state of the merge base of two commits; an empty one if there is none."""
    base = merge_base(repository, left, right)
    if base is None:
        # Every repository begins with an empty commit.
        root = Commit.objects.filter(repository=repository, generation=1).order_by("id")[0]
        return reader_of(repository, root.metarange)
    return reader_of(repository, base.metarange)


def uncommitted(
    repository: Repository, record: BranchRecord, overlay: Overlay, start: bytes = b"", end: bytes | None = None
) -> Iterator[Change]:
    """Yield the changes of an overlay over the base of a record against its head."""
    committed = reader_of(repository, metarange_of_commit(repository, record.head))
    snapshot = reader_of(repository, record.snapshot) if record.snapshot else None
    return diff_uncommitted(overlay, committed, snapshot, start, end, kept_differences)


def is_clean(repository: Repository, record: BranchRecord, *, tokens: tuple[str, ...] | None = None) -> bool:
    """Return whether tokens of a record (default: all) over its snapshot make no difference to its head."""
    with one_snapshot():
        return next(uncommitted(repository, record, overlay_of(record, tokens)), None) is None


def are_equal(left: StateReader, right: StateReader) -> bool:
    """Return whether two states have the same content."""
    return left.metarange.id == right.metarange.id or next(diff_states(left, right), None) is None


def kept_differences(left: StateReader, right: StateReader, start: bytes, end: bytes | None) -> Iterable[Change]:
    """Yield the result of ``diff_states``, cached if it is short."""

    def read() -> tuple[tuple[Change, ...] | None, int]:
        found = tuple(islice(diff_states(left, right), CHANGES_KEPT + 1))
        if len(found) > CHANGES_KEPT:
            return None, CHANGE_BYTES
        return found, CHANGE_BYTES + sum(map(_size_of, found))

    place = (left.files.store.url, left.files.prefix, left.metarange.id, right.metarange.id)
    changes = _cache.get(place, read)
    if changes is None:
        return diff_states(left, right, start, end)
    first = bisect_left(changes, start, key=_key_of)
    last = len(changes) if end is None else bisect_left(changes, end, key=_key_of)
    return changes[first:last]


def _page(seek: Seek, prefix: bytes, after: bytes, delimiter: bytes, amount: int) -> DiffPage:
    """Return a page; keys with the delimiter after the prefix are grouped into one common prefix."""
    start: bytes | None = max(prefix, after + b"\0") if after else prefix
    if after and _common(after, prefix, delimiter) == after:
        start = prefix_end(after)
    found: list[Difference | CommonPrefix] = []
    while start is not None:
        changes, start = seek(start), None
        for each in changes:
            if len(found) == amount:
                return DiffPage(tuple(found), _key(found[-1]))
            key = _key(each)
            common = _common(key, prefix, delimiter)
            if common is None:
                found.append(each)
            else:
                found.append(CommonPrefix(common))
                start = prefix_end(common)
                break
    return DiffPage(tuple(found), None)


def _common(key: bytes, prefix: bytes, delimiter: bytes) -> bytes | None:
    if not delimiter or not key.startswith(prefix):
        return None
    at = key.find(delimiter, len(prefix))
    return None if at < 0 else key[: at + len(delimiter)]


def _key(item: Difference | CommonPrefix) -> bytes:
    return item.change.key if isinstance(item, Compared) else item.key


def _key_of(change: Change) -> bytes:
    return change.key


def _size_of(change: Change) -> int:
    return CHANGE_BYTES + sum(len(entry.payload) for entry in (change.before, change.after) if entry)
