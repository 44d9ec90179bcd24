"""Makes the golden files: ``python -m tests.golden.make [FOLDER]`` (default: this folder)."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf import json_format

from engine.formats.profile_block.container.container import BlockReader, BlockWriter
from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.profile_block.container.metadata_file import read_metadata_file
from engine.formats.profile_block.merge_model import InlineSection, Scratch
from engine.formats.profile_block.model import BlockMeta, DatasetMeta, Location, StackTree, SymbolPartition
from engine.formats.profile_block.symbols.symbols import decode_symbols, encode_symbols
from engine.formats.proto import block_pb2
from engine.lanes.profiles.jobs import ProfileMergeResult
from engine.lanes.profiles.merge.merge import run
from engine.query.top_functions import top_functions
from engine.storage import ObjectStore, open_store
from tests.engine.formats.profile_block.factories import (
    CPU,
    HEAP,
    TIME_NS,
    Dataset,
    ProfileRow,
    Sample,
    add_to_block,
    make_sections,
    merge_spec,
    series_labels,
    source_object,
    symbol_partition,
)

FOLDER = Path(__file__).parent
SHARD = 3
SEGMENTS = {
    "segment-a.bin": "01JKT0000000000000000000A1",
    "segment-b.bin": "01JKT1000000000000000000B2",
    "segment-old.bin": "01JKT2000000000000000000C3",
}
SIDE_FILE = "segments-meta.json"
LARGE_PARTITION = 0xBA26128CA8B9FC10


def profile_row(number: int, service: str, stacks: list[tuple[str, ...]], **fields: Any) -> ProfileRow:
    """A row whose values and ids follow from its number."""
    samples = tuple(Sample(stack, number * 100 + position + 1) for position, stack in enumerate(stacks))
    labels = series_labels(fields.pop("profile_type", CPU), service, pod=f"pod-{number % 2}")
    return ProfileRow(labels, samples, TIME_NS + number * 1_000_003, number.to_bytes(16, "big"), **fields)


def first_datasets() -> list[Dataset]:
    """Two tenants; many functions, spans and traces, an empty stack."""
    many = [(f"function {number:04}", "run", "main") for number in range(1100)]
    traced = ProfileRow(
        series_labels(service="api", pod="pod-1"),
        (Sample(("work", "main"), 5, 0x0102030405060708, bytes(range(16))), Sample((), 6, 0, None)),
        TIME_NS + 7,
        (77).to_bytes(16, "big"),
        annotations=(("pushed by", "golden"),),
    )
    return [
        Dataset("acme", "api", (profile_row(1, "api", many), traced)),
        Dataset("acme", "web", (profile_row(2, "web", [("render", "main")], profile_type=HEAP),)),
        Dataset("beta", "api", (profile_row(3, "api", [("beta work", "main")]),)),
    ]


def second_datasets() -> list[Dataset]:
    """Two partitions, a long name, and a row that the first segment has too."""
    again = profile_row(2, "web", [("render", "main")], profile_type=HEAP)
    long_name = "a name of more than 255 bytes " * 10
    return [
        Dataset(
            "acme",
            "api",
            (
                profile_row(4, "api", [("work", "main"), (long_name, "main")], partition=LARGE_PARTITION),
                profile_row(5, "api", [("function 0001", "run", "main")]),
            ),
        ),
        Dataset("acme", "web", (again, profile_row(6, "web", [("query", "render", "main")], profile_type=HEAP))),
    ]


def old_datasets() -> list[Dataset]:
    """What a writer of 2024 leaves: a hash as partition id."""
    stacks = [("work", "main"), ("inlined", "work", "main")]
    return [Dataset("acme", "api", (profile_row(8, "api", stacks, partition=LARGE_PARTITION),))]


def with_addresses(partition: SymbolPartition) -> None:
    """Give some locations addresses, fold one, and inline one function into another."""
    locations = partition.locations
    locations[0] = locations[0]._replace(address=0xFFFFFFFFFF600000)
    if len(locations) > 2:
        locations[1] = locations[1]._replace(is_folded=True)
        locations[2] = Location(0, 0x1000, (*locations[2].lines, *locations[1].lines))


def make_segment(
    store: ObjectStore, name: str, datasets: list[Dataset], change: Callable[[SymbolPartition], None] | None = None
) -> None:
    """Write a segment of format-0 datasets with one dataset index per tenant."""
    with store.open_writer(name) as target:
        writer = BlockWriter(target)
        for tenant in sorted({dataset.tenant for dataset in datasets}):
            for dataset in (each for each in datasets if each.tenant == tenant):
                sections = make_sections(dataset.rows)
                if change is not None:
                    partitions = decode_symbols(sections.symbols)
                    for partition in partitions:
                        change(partition)
                    sections = replace(sections, symbols=encode_symbols(partitions))
                add_to_block(writer, dataset, sections)
            writer.add_dataset_index(tenant)
        writer.finish(id=SEGMENTS[name], tenant="", shard=SHARD, compaction_level=0, created_by="golden")


def make_old_segment(store: ObjectStore, name: str, datasets: list[Dataset]) -> None:
    """Write the datasets alone, and their metadata without labels to the side file."""
    with TemporaryDirectory() as folder:
        whole = open_store(f"file://{folder}")
        make_segment(whole, name, datasets)
        meta = BlockReader.open(whole, name).meta
        kept = [dataset for dataset in meta.datasets if dataset.name]
        store.put(name, whole.get(name)[: kept[-1].table_of_contents[0] + kept[-1].size])
    plain = replace(
        meta,
        datasets=tuple(replace(dataset, labels=()) for dataset in kept),
        string_table=("", "acme", "api"),
        created_by="",
        metadata_offset=0,
        format_version=0,
    )
    message = block_pb2.BlockMeta.FromString(encode_metadata(plain))
    store.put(SIDE_FILE, json.dumps({"blocks": [json_format.MessageToDict(message)]}, indent=1).encode())


def three_trees() -> bytes:
    """A partition whose stacks an old writer split over three trees."""
    partition = symbol_partition([(f"f{number}", "main") for number in range(9)])
    trees = [StackTree(max_nodes=8, stack_count=4) for _ in range(3)]
    for number, tree in enumerate(trees):
        tree.parents += [0, 1, 1, 1]
        tree.locations += [1, number, number + 1, number + 2]
    partition.trees = trees
    return encode_symbols([partition, replace(partition, id=1)])


def segment_metas(store: ObjectStore) -> list[tuple[str, BlockMeta]]:
    """Return (key, metadata) of the three segments."""
    (old,) = read_metadata_file(store.get(SIDE_FILE))
    first, second, last = SEGMENTS
    size = store.head(last).size
    metas = [(name, BlockReader.open(store, name).meta) for name in (first, second)]
    return [*metas, (last, replace(old, size=size))]


@contextmanager
def merged(store: ObjectStore) -> Iterator[tuple[ObjectStore, ProfileMergeResult]]:
    """Merge the segments of a store; give where the results are, and what the merge reports."""
    with TemporaryDirectory() as folder:
        target = open_store(f"file://{folder}")
        sources = segment_metas(store)
        for key, _ in sources:
            target.put(key, store.get(key))
        spec = merge_spec([source_object(key, meta) for key, meta in sources], shard=SHARD)
        yield target, run(spec, target, scratch=Scratch(Path(folder) / "scratch"))


def describe(store: ObjectStore, result: ProfileMergeResult) -> dict[str, Any]:
    """Return what every reader of the merged blocks must find, whatever wrote their profile tables."""
    blocks = [(block.key, BlockReader.open(store, block.key)) for block in result.blocks]
    metas = [(key, reader.meta) for key, reader in blocks]
    return {
        "rows_read": result.rows_read,
        "rows_dropped": result.rows_dropped,
        "blocks": [
            {
                "key": key,
                "string_table": list(reader.meta.string_table),
                "sections": {dataset.name: _hashes(reader, dataset) for dataset in reader.meta.datasets},
            }
            for key, reader in blocks
        ],
        "top_functions": {
            f"{tenant}/{service}/{kind}": [
                list(entry) for entry in top_functions(store, metas, tenant, service, kind, 5).functions
            ]
            for tenant, service, kind in (("acme", "api", CPU), ("acme", "web", HEAP), ("beta", "api", CPU))
        },
    }


def _hashes(reader: BlockReader, dataset: DatasetMeta) -> list[str]:
    """Hash the sections whose bytes do not depend on a Parquet writer."""
    bounds = dataset.section_bounds()[1:] or dataset.section_bounds()
    return [hashlib.sha256(reader.read(*place)).hexdigest() for place in bounds]


def make(folder: Path) -> None:
    """Write every golden file into a folder."""
    store = open_store(f"file://{folder}")
    first, second, last = SEGMENTS
    make_segment(store, first, first_datasets())
    make_segment(store, second, second_datasets(), with_addresses)
    make_old_segment(store, last, old_datasets())
    store.put("three-trees.symdb", InlineSection(three_trees()).data)
    with merged(store) as (target, result):
        store.put("expected.json", json.dumps(describe(target, result), indent=1).encode() + b"\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
