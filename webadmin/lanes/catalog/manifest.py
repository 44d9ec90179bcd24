"""The lane of catalogs in the web application: its apps, URLs and metrics."""

from __future__ import annotations

from engine.core.metrics import Metric
from webadmin.base.lane_manifest import WebManifest

REPOSITORY = ("tenant", "repository")

MANIFEST = WebManifest(
    name="catalog",
    apps=(
        "webadmin.lanes.catalog",
        "webadmin.lanes.catalog.api",
    ),
    urls=(("api/v1/", "webadmin.lanes.catalog.urls"), ("lakefs/api/v1/", "webadmin.lanes.catalog.api.urls")),
    metrics=(
        Metric(
            "lithify_catalog_sealed_tokens",
            "gauge",
            REPOSITORY,
            "sealed tokens of a repository's branches, for the 200 repositories with most",
        ),
        Metric(
            "lithify_catalog_tombstones",
            "gauge",
            REPOSITORY,
            "approximate number of tombstones written since the branches were last compacted",
        ),
        Metric("lithify_catalog_oldest_sealed_seconds", "gauge", REPOSITORY, "age of the oldest sealed token"),
        Metric(
            "lithify_catalog_wanted_branches",
            "gauge",
            REPOSITORY,
            "branches that are worth compacting and are not being compacted",
        ),
        Metric(
            "lithify_catalog_compactions",
            "gauge",
            (*REPOSITORY, "state"),
            "compactions that ended within the last hour: published, lost (to a commit, say), "
            "failed (or their job is parked), ended",
        ),
        Metric(
            "lithify_catalog_compaction_seconds",
            "gauge",
            REPOSITORY,
            "duration of the longest compaction published within the last hour",
        ),
        Metric(
            "lithify_catalog_compaction_bytes", "gauge", REPOSITORY, "bytes that compactions wrote within the last hour"
        ),
        Metric("lithify_catalog_orphans", "gauge", REPOSITORY, "unreachable files that are not deleted yet"),
        Metric("lithify_catalog_retired_tokens", "gauge", REPOSITORY, "tokens whose rows remain to be deleted"),
        Metric(
            "lithify_catalog_collection_failed",
            "gauge",
            REPOSITORY,
            "1 while unreachable files are not deleted because collection fails",
        ),
    ),
)
