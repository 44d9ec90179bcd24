"""The lane of catalogs on Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from engine.core.thread_priority import lower_thread_priority
from engine.lanes.catalog.jobs import KIND, CatalogCompactSpec
from spark.lanes.catalog import compact
from spark.lanes.manifest import Batch, SparkManifest


def _merge(session: SparkSession, specs: Sequence[CatalogCompactSpec], batch: Batch) -> Mapping[str, Any]:
    """Compact small branches in this process at idle priority, and large ones on Spark."""
    lower_thread_priority()
    return compact.run_where_it_fits(session, specs, batch.store_url, **batch.options())


MANIFEST = SparkManifest(name=KIND, merge=_merge)
