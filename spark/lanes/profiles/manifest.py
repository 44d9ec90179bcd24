"""The lane of profiles on Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from engine.lanes.profiles.jobs import KIND, ProfileMergeSpec
from spark.lanes.manifest import Batch, SparkManifest
from spark.lanes.profiles import merge


def _merge(session: SparkSession, specs: Sequence[ProfileMergeSpec], batch: Batch) -> Mapping[str, Any]:
    return merge.run(session, specs, batch.store_url, **batch.options())


MANIFEST = SparkManifest(name=KIND, merge=_merge, kernels=("engine.lanes.profiles.merge._dataset_merge",))
