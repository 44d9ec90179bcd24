"""Objects of another program are copied with their keys; their own folder is not touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.storage import open_store
from webadmin.embedded.demo.foreign import NothingToCompact, copy_blocks, find_metadata_file


def written(folder: Path, *keys: str) -> dict[str, bytes]:
    """Write a file for every key, as another program would have."""
    for key in keys:
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(key.encode() * 100)
    return {key: key.encode() * 100 for key in keys}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_block_objects_come_with_their_keys_and_nothing_else_does(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    blocks = written(bucket, "segments/1/anonymous/A/block.bin", "samples/B/block.bin")
    written(bucket, "segments-meta.json", "blocks/notes.txt")
    before = files(bucket)
    target = open_store(f"file://{tmp_path}/own")
    steps: list[tuple[int, int]] = []
    size = copy_blocks(str(bucket), target, lambda done, count: steps.append((done, count)))
    assert {info.key: target.get(info.key) for info in target.list()} == blocks
    assert size == sum(map(len, blocks.values()))
    assert steps == [(1, 2), (2, 2)]
    assert files(bucket) == before


def test_a_folder_without_blocks_is_an_error(tmp_path: Path) -> None:
    written(tmp_path / "bucket", "readme.md")
    with pytest.raises(NothingToCompact, match="has no objects"):
        copy_blocks(str(tmp_path / "bucket"), open_store(f"file://{tmp_path}/own"), lambda done, count: None)


def test_the_side_file_is_found_beside_the_objects(tmp_path: Path) -> None:
    assert find_metadata_file(str(tmp_path), None) is None
    written(tmp_path, "segments-meta.json", "other.json")
    assert find_metadata_file(str(tmp_path), None) == tmp_path / "segments-meta.json"
    assert find_metadata_file(str(tmp_path), str(tmp_path / "other.json")) == tmp_path / "other.json"
