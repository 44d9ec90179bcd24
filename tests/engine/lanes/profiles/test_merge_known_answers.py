"""A whole merge job on the blocks of another program: the ids and hashes that it is known to give."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from engine.formats.profile_block.merge_model import Scratch
from engine.formats.profile_block.table.profile_table import ProfileTableReader
from engine.lanes.profiles.jobs import ProfileMergeResult
from engine.lanes.profiles.merge.merge import run
from engine.query.top_functions import top_functions
from engine.storage import ObjectStore
from tests.engine.conftest import Block, ForeignBlocks, Implementation
from tests.engine.formats.profile_block.factories import (
    CPU,
    merge_spec,
)
from tests.engine.formats.profile_block.results import result_meta, sections


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


class Results:
    """Where results of merging foreign blocks go: reads from the foreign store, writes to another."""

    def __init__(self, source: ObjectStore, target: ObjectStore) -> None:
        self._source, self.target = source, target

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target if name == "open_writer" else self._source, name)


def merge_foreign(
    foreign: ForeignBlocks, blocks: list[Block], store: ObjectStore, scratch: Scratch, **fields: Any
) -> ProfileMergeResult:
    meta = blocks[0].meta
    spec = merge_spec(
        [block.source() for block in blocks],
        tenant=meta.tenant,
        shard=meta.shard,
        level=max(block.meta.compaction_level for block in blocks),
        **fields,
    )
    return run(spec, Results(foreign.store, store), scratch=scratch)  # type: ignore[arg-type]


@pytest.mark.foreign_data
def test_five_real_segments_become_the_known_block(
    merging: Implementation, foreign_blocks: ForeignBlocks, store: ObjectStore, scratch: Scratch
) -> None:
    blocks = [foreign_blocks[name] for name in ("01J2VJQPYD", "01J2VJQRTM", "01J2VJQV54", "01J2VJQYQV", "01J2VJR0R3")]
    result = merge_foreign(foreign_blocks, blocks, store, scratch)
    meta = result_meta(store, result)
    assert (meta.id, meta.compaction_level, meta.shard) == ("01J2VJQPYDBY3Y1NYSY0PGJ8AX", 1, 1)
    assert meta.string_table == (
        "",
        "anonymous",
        "pyroscope-test/ingester",
        "pyroscope-test/query-frontend",
        "pyroscope-test/alloy",
        "__tenant_dataset__",
        "dataset_tsdb_index",
    )
    found = sections(store, result.blocks[0].key)
    assert {name: [(len(part), sha(part)) for part in parts[-2:]] for name, parts in found.items()} == {
        "pyroscope-test/alloy": [(2605, "2ca08bc41dc4d5e4"), (19630, "8467b7b30be3e431")],
        "pyroscope-test/ingester": [(5307, "17e330daa5bff8c3"), (48794, "488a32a8277ef2b6")],
        "pyroscope-test/query-frontend": [(3019, "9a0adf4dc965dbde"), (21362, "0633f500a01b29e8")],
        "": [(7487, "6fec080ea63f7b98")],
    }
    counts = {name: _counts(parts[0]) for name, parts in found.items() if name}
    assert counts == {
        "pyroscope-test/alloy": (2, 112),
        "pyroscope-test/ingester": (10, 401),
        "pyroscope-test/query-frontend": (3, 88),
    }
    assert (result.rows_read, result.rows_dropped) == (15, 0)


def _counts(profiles: bytes) -> tuple[int, int]:
    reader = ProfileTableReader(profiles)
    return reader.row_count, reader.sample_count


@pytest.mark.foreign_data
@pytest.mark.parametrize(
    ("names", "block_id", "level", "rows", "samples", "series_index", "symbols", "dataset_index"),
    [
        (
            ["01JKT2XEGT", "01JKT42699"],
            "01JKT2XEGTDZNFFF2SW5JAYX44",
            4,
            246,
            39360,
            (8723, "a11555564f1d5004"),
            (2047, "86b0db61e0c70592"),
            (7767, "02127b6f320d7bbf"),
        ),
        (
            ["01JKT3DJRE"],
            "01JKT3DJRE1GB7PK0F78AM2FAM",
            4,
            116,
            6528,
            (4728, "e43717a9b3668a7a"),
            (157199, "7808f4eb23ecb0a1"),
            (4556, "8988779c10731a76"),
        ),
        (
            ["01JKT42699", "01JKT42699"],
            "01JKT42699SC1ZE82BNSMS76VV",
            3,
            6,
            960,
            (2191, "077a251af786c4f0"),
            (2047, "86b0db61e0c70592"),
            (2103, "5ce436018c0696f5"),
        ),
    ],
)
def test_real_blocks_become_the_known_ones(
    merging: Implementation,
    foreign_blocks: ForeignBlocks,
    store: ObjectStore,
    scratch: Scratch,
    names: list[str],
    block_id: str,
    level: int,
    rows: int,
    samples: int,
    series_index: tuple[int, str],
    symbols: tuple[int, str],
    dataset_index: tuple[int, str],
) -> None:
    result = merge_foreign(foreign_blocks, [foreign_blocks[name] for name in names], store, scratch)
    meta = result_meta(store, result)
    assert (meta.id, meta.compaction_level) == (block_id, level)
    (dataset, index) = sections(store, result.blocks[0].key).values()
    assert _counts(dataset[0]) == (rows, samples)
    assert [(len(part), sha(part)) for part in (*dataset[1:], *index)] == [series_index, symbols, dataset_index]


@pytest.mark.foreign_data
def test_merging_a_final_block_again_gives_its_own_symbols(
    merging: Implementation, foreign_blocks: ForeignBlocks, store: ObjectStore, scratch: Scratch
) -> None:
    for name in ("01JKT2XEGT", "01JKT3DJRE"):
        block = foreign_blocks[name]
        result = merge_foreign(foreign_blocks, [block], store, scratch)
        assert next(iter(sections(store, result.blocks[0].key).values()))[2] == next(block.sections(2))


@pytest.mark.slow
@pytest.mark.foreign_data
def test_the_top_functions_are_the_known_ones_before_and_after(
    merging: Implementation, foreign_blocks: ForeignBlocks, store: ObjectStore, scratch: Scratch
) -> None:
    block = foreign_blocks["01JKT3DJRE"]
    before = top_functions(foreign_blocks.store, [(block.key, block.meta)], "anonymous", "pyroscope", CPU, 10)
    assert [(entry.self_value, entry.function) for entry in before.functions] == [
        (1120000000, "syscall.syscall"),
        (710000000, "runtime.pthread_cond_signal"),
        (650000000, "runtime.kevent"),
        (500000000, "runtime.pthread_cond_wait"),
        (290000000, "runtime.madvise"),
        (270000000, "runtime.memclrNoHeapPointers"),
        (160000000, "runtime.scanobject"),
        (140000000, "github.com/klauspost/compress/flate.(*fastEncL5).Encode"),
        (130000000, "runtime.pthread_kill"),
        (90000000, "runtime.typePointers.next"),
    ]
    assert before.total_value == 6220000000
    result = merge_foreign(foreign_blocks, [block], store, scratch, task_memory_bytes=600_000)
    assert len(result.blocks) > 1
    written = [(entry.key, result_meta(store, result, number)) for number, entry in enumerate(result.blocks)]
    after = top_functions(store, written, "anonymous", "pyroscope", CPU, 10)
    assert (after.functions, after.total_value) == (before.functions, before.total_value)
