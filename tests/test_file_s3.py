"""The S3 server of the measurements keeps what it is given: else they would measure something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.storage import InvalidRange, ObjectNotFound, open_store
from engine.storage.s3 import PART_SIZE
from tests.file_s3 import running_file_s3
from tests.object_stores import s3_credentials

__all__ = ["s3_credentials"]


@pytest.mark.usefixtures("s3_credentials")
def test_objects_come_back_whole_in_parts_and_in_listings(tmp_path: Path) -> None:
    large = bytes(range(251)) * (PART_SIZE // 100)
    with running_file_s3(tmp_path) as (server, _):
        store = open_store(server.store_url("bucket", "some/prefix"))
        store.put("a/small", b"x")
        with store.open_writer("a/large") as writer:
            for start in range(0, len(large), 1_000_003):
                writer.write(large[start : start + 1_000_003])
        assert [(info.key, info.size) for info in store.list("a/")] == [("a/large", len(large)), ("a/small", 1)]
        assert list(store.list_folders()) == ["a/"]
        assert list(store.list_folders("a/")) == list(store.list_folders("b/")) == []
        assert store.get("a/large") == large
        assert store.get_range("a/large", PART_SIZE - 5, 10) == large[PART_SIZE - 5 : PART_SIZE + 5]
        with pytest.raises(InvalidRange):
            store.get_range("a/small", 0, 2)
        store.delete("a/small")
        with pytest.raises(ObjectNotFound):
            store.head("a/small")
        with pytest.raises(ObjectNotFound):
            store.get("a/small")
        assert [info.key for info in store.list()] == ["a/large"]
        store.close()
