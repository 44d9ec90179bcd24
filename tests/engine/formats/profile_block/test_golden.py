"""The golden files: everybody's stand-in for the blocks of other programs, read, re-encoded, merged, queried."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from engine.formats.profile_block.container.container import BlockReader
from engine.formats.profile_block.container.metadata import encode_footer
from engine.formats.profile_block.model import BlockMeta, DatasetMeta
from engine.formats.profile_block.table.profile_table import SCHEMA, ProfileTableReader
from engine.storage import ObjectStore, open_store
from tests.engine.conftest import Implementation
from tests.golden import make

GOLDEN = Path(make.__file__).parent


@pytest.fixture(scope="session")
def golden() -> ObjectStore:
    return open_store(f"file://{GOLDEN}")


def all_sections(store: ObjectStore) -> list[tuple[BlockMeta, DatasetMeta, list[bytes]]]:
    found = []
    for key, meta in make.segment_metas(store):
        reader = BlockReader(store, key, meta)
        for dataset in meta.datasets:
            found.append((meta, dataset, [reader.read(*bounds) for bounds in dataset.section_bounds()]))
    return found


def test_every_section_re_encodes_byte_for_byte(implementation: Implementation, golden: ObjectStore) -> None:
    indexes = symbols = 0
    for _, dataset, parts in all_sections(golden):
        index = parts[0] if dataset.format else parts[1]
        assert implementation.encode_series_index(implementation.decode_series_index(index)) == index
        indexes += 1
        if dataset.format == 0:
            assert implementation.encode_symbols(implementation.decode_symbols(parts[2])) == parts[2]
            symbols += 1
    assert (indexes, symbols) == (9, 6)


def test_symbols_in_three_trees_re_encode_byte_for_byte(implementation: Implementation, golden: ObjectStore) -> None:
    data = golden.get("three-trees.symdb")
    partitions = implementation.decode_symbols(data)
    assert [len(partition.trees) for partition in partitions] == [3, 3]
    assert implementation.encode_symbols(partitions) == data


def test_footers_re_encode_byte_for_byte(golden: ObjectStore) -> None:
    for name in ("segment-a.bin", "segment-b.bin"):
        meta = BlockReader.open(golden, name).meta
        assert golden.get(name)[meta.metadata_offset :] == encode_footer(meta)


def test_the_files_are_what_the_script_makes(golden: ObjectStore, tmp_path: Path) -> None:
    make.make(tmp_path)
    again = open_store(f"file://{tmp_path}")
    assert json.loads(again.get("expected.json")) == json.loads(golden.get("expected.json"))
    assert again.get("three-trees.symdb") == golden.get("three-trees.symdb")
    for (_, dataset, parts), (_, other, other_parts) in zip(all_sections(golden), all_sections(again), strict=True):
        assert (dataset.tenant, dataset.name, dataset.labels) == (other.tenant, other.name, other.labels)
        if dataset.format == 0:
            assert parts[1:] == other_parts[1:]
            assert rows(parts[0]).equals(rows(other_parts[0]))
        else:
            assert parts == other_parts


def rows(profiles: bytes) -> pa.Table:
    return pa.Table.from_batches(ProfileTableReader(profiles).batches(), SCHEMA)


def test_merging_the_segments_gives_the_expected_blocks(merging: Implementation, golden: ObjectStore) -> None:
    expected = json.loads(golden.get("expected.json"))
    with make.merged(golden) as (store, result):
        assert make.describe(store, result) == expected
    assert (expected["rows_read"], expected["rows_dropped"]) == (9, 1)


def test_the_segments_answer_as_the_merged_blocks_do(golden: ObjectStore) -> None:
    expected = json.loads(golden.get("expected.json"))["top_functions"]
    for name, functions in expected.items():
        tenant, service, kind = name.split("/")
        answer = make.top_functions(golden, make.segment_metas(golden), tenant, service, kind, 5)
        assert [list(entry) for entry in answer.functions] == functions
        assert functions
