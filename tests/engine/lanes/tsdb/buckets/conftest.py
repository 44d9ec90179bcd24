"""Buckets in both layouts, in a folder and in an S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.storage import ObjectStore, open_store
from tests.engine.lanes.tsdb.buckets.bucket import Bucket
from tests.object_stores import s3_credentials, s3_server, s3_store

__all__ = ["s3_credentials", "s3_server", "s3_store"]

LAYOUTS = ("cortex", "thanos")


@pytest.fixture(params=LAYOUTS)
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    """An empty bucket of each layout in a folder."""
    return Bucket(open_store(str(tmp_path / "bucket")), request.param)


@pytest.fixture(params=["folder", "s3"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    """An empty folder, and an empty S3 bucket."""
    if request.param == "s3":
        yield request.getfixturevalue("s3_store")
    else:
        yield open_store(str(tmp_path / "bucket"))
