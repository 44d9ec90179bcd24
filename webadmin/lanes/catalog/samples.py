"""Metrics of catalogs on ``/metrics``.

A fixed number of queries, and a bounded number of repositories: those with most sealed tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

from webadmin.lanes.catalog.status import active_repositories, states_within_hour, statuses

Sample = tuple[tuple[str, ...], float]


def catalog_samples(repositories_max: int) -> Iterator[tuple[str, list[Sample]]]:
    """Yield each metric's name with its samples."""
    repositories = active_repositories()
    found = statuses(repositories)
    shown = sorted(repositories, key=lambda one: -found[one.pk].sealed_tokens)[:repositories_max]
    rows = [((one.tenant, one.name), found[one.pk]) for one in shown]
    yield "lithify_catalog_sealed_tokens", [(key, now.sealed_tokens) for key, now in rows]
    yield "lithify_catalog_tombstones", [(key, now.tombstones) for key, now in rows]
    yield "lithify_catalog_oldest_sealed_seconds", [(key, now.oldest_sealed_ms / 1000) for key, now in rows]
    yield "lithify_catalog_wanted_branches", [(key, now.wanted) for key, now in rows]
    yield (
        "lithify_catalog_compactions",
        [((*key, state), count) for key, now in rows for state, count in states_within_hour(now).items()],
    )
    yield "lithify_catalog_compaction_seconds", [(key, now.took_ms / 1000) for key, now in rows]
    yield "lithify_catalog_compaction_bytes", [(key, now.written) for key, now in rows]
    yield "lithify_catalog_orphans", [(key, now.orphans) for key, now in rows]
    yield "lithify_catalog_retired_tokens", [(key, now.retired_tokens) for key, now in rows]
    yield "lithify_catalog_collection_failed", [(key, float(now.is_not_collected)) for key, now in rows]
