"""The log of a reference: its commits, filtered by changed keys and by time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.formats.ranges.model import prefix_end
from engine.lanes.catalog.diff import diff_states
from webadmin.lanes.catalog.models import Commit, Repository
from webadmin.lanes.catalog.places import reader_of
from webadmin.lanes.catalog.services.commits import find_commit, walk_back
from webadmin.lanes.catalog.services.pages import checked_amount
from webadmin.lanes.catalog.services.refs import commit_at


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Filters of a log; with keys or prefixes, commits that changed one of them against their first parent.

    ``after`` is the id of the last commit of the previous page; ``stop_at`` a reference whose commit is the last.
    """

    after: str = ""
    amount: int = 100
    is_first_parent: bool = False
    keys: Sequence[bytes] = ()
    prefixes: Sequence[bytes] = ()
    since_ms: int | None = None
    stop_at: str = ""


def log_of(repository: Repository, ref: str, query: LogQuery) -> tuple[list[Commit], bool]:
    """Return a page of commits, the highest generation first, and whether there are more.

    Raises RefMissing, RefRefused, CommitMissing, BadObject.
    """
    checked_amount(query.amount)
    found: list[Commit] = []
    for commit in _behind(repository, ref, query):
        if _is_wanted(repository, commit, query):
            if len(found) == query.amount:
                return found, True
            found.append(commit)
    return found, False


def _behind(repository: Repository, ref: str, query: LogQuery) -> Iterator[Commit]:
    """Yield the commits after ``after`` up to ``stop_at``, none older than ``since_ms``."""
    last = commit_at(repository, query.stop_at).commit_id if query.stop_at else ""
    is_behind = not query.after
    if query.after:
        find_commit(repository, query.after)
    for commit in walk_back(repository, commit_at(repository, ref), is_first_parent=query.is_first_parent):
        if is_behind and (query.since_ms is None or commit.created_ms >= query.since_ms):
            yield commit
        is_behind = is_behind or commit.commit_id == query.after
        if commit.commit_id == last:
            return


def _is_wanted(repository: Repository, commit: Commit, query: LogQuery) -> bool:
    if not (query.keys or query.prefixes):
        return True
    after = reader_of(repository, commit.metarange)
    stretches = [(key, key + b"\0") for key in query.keys] + [(each, prefix_end(each)) for each in query.prefixes]
    if not commit.parents:
        return any(next(after.scan(*stretch), None) is not None for stretch in stretches)
    before = reader_of(repository, find_commit(repository, commit.parents[0]).metarange)
    return any(next(diff_states(before, after, *stretch), None) is not None for stretch in stretches)
