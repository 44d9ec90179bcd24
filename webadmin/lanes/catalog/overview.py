"""Catalogs on the front page: the status of each repository, those with most sealed tokens first; cached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.core.cache import cache

from webadmin.adminkit import formatting as show
from webadmin.adminkit.overview import LaneOverview
from webadmin.adminkit.sections import Table
from webadmin.base.access.confinement import cache_key
from webadmin.lanes.catalog.models import Repository
from webadmin.lanes.catalog.repository_sections import collection_words, done_words, state_badge, tombstones_text
from webadmin.lanes.catalog.status import RepositoryStatus, active_repositories, statuses

REPOSITORIES_SHOWN = 8
KEPT_SECONDS = 15
_KEY = "catalog-overview"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryRow:
    """A repository and its status."""

    repository: Repository
    now: RepositoryStatus


def repository_rows() -> list[RepositoryRow]:
    """Return the status of each repository, most sealed tokens first; at most ``KEPT_SECONDS`` old."""
    key = cache_key(_KEY)
    found: list[RepositoryRow] | None = cache.get(key)
    if found is None:
        repositories = active_repositories()
        now = statuses(repositories) if repositories else {}
        rows = [RepositoryRow(repository=one, now=now[one.pk]) for one in repositories]
        found = sorted(rows, key=lambda one: -one.now.sealed_tokens)
        cache.set(key, found, timeout=KEPT_SECONDS)
    return found


def catalogs_table(rows: Sequence[RepositoryRow]) -> Table:
    """Return a table of the repositories with their compaction signals."""
    more = len(rows) - REPOSITORIES_SHOWN
    return Table(
        title="Catalogs",
        headers=("Repository", "State", "Branches", "Sealed tokens", "Tombstones", "Compactions", "Garbage"),
        rows=[
            (
                show.row_link(one.repository, show.name(str(one.repository))),
                state_badge(one.repository, one.now),
                show.count_text(one.now.branches),
                show.count_text(one.now.sealed_tokens),
                tombstones_text(one.now.tombstones),
                done_words(one.now),
                collection_words(one.now),
            )
            for one in rows[:REPOSITORIES_SHOWN]
        ],
        more=show.link(show.list_address(Repository), f"{more} more") if more > 0 else "",
    )


def catalog_overview() -> LaneOverview:
    """Return the state of catalogs for the front page."""
    rows = repository_rows()
    return LaneOverview(
        wide_sections=[catalogs_table(rows)] if rows else [],
        holds=show.counted(len(rows), "repository") if rows else "",
    )
