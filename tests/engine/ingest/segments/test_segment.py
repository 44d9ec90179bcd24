"""Segments built from pushes: layout, rows, labels, and that nothing of a profile is lost on the way."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.core import ulids
from engine.core.errors import BadBlockName, BadObject, BadProfile
from engine.formats.pprof import pprof
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_encode import encode_profile
from engine.formats.pprof.pprof_model import Profile
from engine.formats.profile_block.container.metadata import decode_footer, encode_metadata
from engine.formats.profile_block.container.object_names import block_key
from engine.formats.profile_block.merge_model import Scratch
from engine.formats.profile_block.model import DATASET_INDEX, BlockMeta, DatasetMeta, IndexedSeries, SymbolPartition
from engine.formats.profile_block.series.series_index import decode_series_index
from engine.formats.profile_block.symbols.symbols import decode_symbols
from engine.formats.profile_block.table.profile_table import ProfileTableReader
from engine.ingest.segments.segment import SegmentBuilder
from engine.lanes.profiles.jobs import ProfileMergeSpec, SourceObject
from engine.lanes.profiles.merge import merge
from engine.storage.local import LocalStore

pytestmark = pytest.mark.usefixtures("each_intake")

SEGMENT_ID = "01JKT3DJRETWN25NKEFZNEP1V0"
TIME_NS = 1_739_264_694_822_565_000
CPU, COUNT = ("cpu", "nanoseconds"), ("samples", "count")
LEAF, MIDDLE, ROOT = (
    Frame(name, "app.py", line, line + 1) for name, line in [("leaf", 10), ("middle", 20), ("root", 1)]
)
SPAN_PUSH = {
    "__name__": "process_cpu",
    "service_name": "test-app",
    "foo": "bar",
    "instance": '"1"',
    "pyroscope_spy": "gospy",
}


@dataclass(frozen=True)
class ReadDataset:
    """A dataset read back from a segment."""

    meta: DatasetMeta
    rows: list[dict[str, Any]]
    series: list[IndexedSeries]
    symbols: SymbolPartition
    sections: tuple[bytes, bytes, bytes]


def read_dataset(data: bytes, meta: DatasetMeta) -> ReadDataset:
    table, index, symbols = (data[start : start + size] for start, size in meta.section_bounds())
    rows = [row for batch in ProfileTableReader(table).batches() for row in batch.to_pylist()]
    (partition,) = decode_symbols(symbols)
    return ReadDataset(meta, rows, decode_series_index(index), partition, (table, index, symbols))


def read_segment(built: tuple[bytes, BlockMeta]) -> list[ReadDataset]:
    """Read every dataset, after checking that footer and returned metadata say the same."""
    data, meta = built
    assert decode_footer(data, len(data)) == meta
    assert meta.datasets[0].table_of_contents[0] == 0
    return [read_dataset(data, dataset) for dataset in meta.datasets if dataset.format != DATASET_INDEX]


def profile_of(*samples: tuple[list[Frame], list[int], dict[str, str]], time_ns: int = TIME_NS) -> Profile:
    builder = ProfileBuilder([COUNT, CPU], period_type=CPU, period=1)
    for stack, values, labels in samples:
        builder.add(stack, values, labels.items())
    return builder.profile(time_ns=time_ns, duration_ns=250_000_000)


def simple(value: int = 5, time_ns: int = TIME_NS) -> Profile:
    return profile_of(([LEAF, ROOT], [1, value], {}), ([MIDDLE, ROOT], [2, 2 * value], {}), time_ns=time_ns)


def push(service: str = "shop", **labels: str) -> dict[str, str]:
    return {"__name__": "process_cpu", "service_name": service, **labels}


def row_stacks(dataset: ReadDataset, row: dict[str, Any]) -> Counter[tuple[bytes, ...]]:
    """The row's total value per stack of function names, leaf first."""
    found: Counter[tuple[bytes, ...]] = Counter()
    for sample in row["Samples"]:
        found[stack_names(dataset.symbols, sample["StacktraceID"])] += sample["Value"]
    return found


def stack_names(symbols: SymbolPartition, node: int) -> tuple[bytes, ...]:
    names, tree = [], symbols.trees[0]
    while node:
        for function, _ in symbols.locations[tree.locations[node]].lines:
            names.append(symbols.strings[symbols.functions[function].name])
        node = tree.parents[node]
    return tuple(names)


def test_datasets_lie_by_tenant_and_service_each_tenant_with_its_index() -> None:
    builder = SegmentBuilder(3, "host-1")
    for tenant, service in [("b", "x"), ("a", "z"), ("b", "A"), ("a", "y")]:
        builder.add(tenant, push(service), simple())
    data, meta = builder.build(SEGMENT_ID)
    assert [(one.tenant, one.name, one.format) for one in meta.datasets] == [
        ("a", "y", 0),
        ("a", "z", 0),
        ("a", "", 1),
        ("b", "A", 0),
        ("b", "x", 0),
        ("b", "", 1),
    ]
    ends = [one.table_of_contents[0] + one.size for one in meta.datasets]
    assert [one.table_of_contents[0] for one in meta.datasets] == [0, *ends[:-1]]
    assert meta.metadata_offset == ends[-1]
    assert (meta.id, meta.tenant, meta.shard, meta.compaction_level, meta.created_by) == (
        SEGMENT_ID,
        "",
        3,
        0,
        "host-1",
    )
    assert meta.size == len(data)
    assert decode_footer(data, len(data)) == meta


def test_the_dataset_index_names_the_position_of_each_series_dataset() -> None:
    builder = SegmentBuilder(3)
    for tenant, service in [("a", "y"), ("b", "x"), ("b", "w")]:
        builder.add(tenant, push(service), simple())
    data, meta = builder.build(SEGMENT_ID)
    start, size = meta.datasets[4].section_bounds()[0]
    found = decode_series_index(data[start : start + size])
    assert [(dict(one.labels)[b"service_name"], one.position, one.min_time_ns) for one in found] == [
        (b"w", 2, 0),
        (b"w", 2, 0),
        (b"x", 3, 0),
        (b"x", 3, 0),
    ]


def test_rows_carry_series_time_id_and_total() -> None:
    builder = SegmentBuilder(1)
    later = builder.add("a", push(), simple(7, TIME_NS + 1))
    earlier = builder.add("a", push(), simple(5, TIME_NS))
    (dataset,) = read_segment(builder.build(SEGMENT_ID))
    assert [(row["SeriesIndex"], row["ID"].bytes, row["TotalValue"]) for row in dataset.rows] == [
        (0, earlier.id, 15),
        (0, later.id, 21),
        (1, earlier.id, 3),
        (1, later.id, 3),
    ]
    assert [(one.min_time_ns, one.max_time_ns) for one in dataset.series] == [(TIME_NS, TIME_NS + 1)] * 2
    assert (dataset.meta.min_time_ms, dataset.meta.max_time_ms) == (TIME_NS // 10**6, (TIME_NS + 1) // 10**6)


def test_equal_symbols_of_several_profiles_are_stored_once() -> None:
    builder = SegmentBuilder(1)
    for second in range(5):
        builder.add("a", push(), simple(5, TIME_NS + second))
    (dataset,) = read_segment(builder.build(SEGMENT_ID))
    symbols = dataset.symbols
    assert len(symbols.functions) == 3
    assert len(symbols.locations) == 3
    assert len(symbols.trees[0].parents) == 4
    assert symbols.trees[0].stack_count == 2


def test_stacks_come_back_as_they_were_pushed() -> None:
    builder = SegmentBuilder(1)
    builder.add("a", push(), simple())
    (dataset,) = read_segment(builder.build(SEGMENT_ID))
    assert row_stacks(dataset, dataset.rows[0]) == {(b"leaf", b"root"): 5, (b"middle", b"root"): 10}


def test_a_sample_without_a_stack_keeps_its_value() -> None:
    builder = SegmentBuilder(1)
    builder.add("a", push(), profile_of(([], [1, 4], {}), ([LEAF], [1, 3], {})))
    (dataset,) = read_segment(builder.build(SEGMENT_ID))
    assert row_stacks(dataset, dataset.rows[0]) == {(): 4, (b"leaf",): 3}


def test_spans_and_traces_are_stored_beside_the_samples() -> None:
    builder = SegmentBuilder(1)
    labels = {"span_id": "0100000000000000", "trace_id": "00" * 15 + "07"}
    builder.add("a", push(), profile_of(([LEAF], [1, 3], labels), ([ROOT], [1, 4], {})))
    builder.add("a", push("other"), simple())
    with_spans, without = reversed(read_segment(builder.build(SEGMENT_ID)))
    found = {sample["Value"]: (sample["SpanID"], sample["TraceID"]) for sample in with_spans.rows[0]["Samples"]}
    assert found == {3: (1, bytes(15) + b"\x07"), 4: (0, None)}
    assert {sample["SpanID"] for row in without.rows for sample in row["Samples"]} == {None}


def test_dataset_labels_list_the_types_and_what_lacks_symbols() -> None:
    builder = SegmentBuilder(1)
    profile = simple()
    profile.mappings.flags[:] = 0
    builder.add("a", push(), profile)
    (dataset,) = read_segment(builder.build(SEGMENT_ID))
    assert dataset.meta.labels == (
        (("service_name", "shop"), ("__profile_type__", "process_cpu:cpu:nanoseconds:cpu:nanoseconds")),
        (("service_name", "shop"), ("__profile_type__", "process_cpu:samples:count:cpu:nanoseconds")),
        (("service_name", "shop"), ("__unsymbolized__", "true")),
    )


def test_annotations_and_the_odd_columns_are_stored() -> None:
    builder = SegmentBuilder(1)
    profile = simple()
    profile.drop_frames, profile.comments, profile.default_sample_type = 3, [1, 2], 0
    builder.add("a", push(), profile, annotations=[("source", "upload")])
    (dataset,) = read_segment(builder.build(SEGMENT_ID))
    row = dataset.rows[0]
    assert (row["DropFrames"], row["KeepFrames"], row["DefaultSampleType"], row["Period"]) == (3, None, None, None)
    assert row["Comments"] == [1, 2]
    assert row["Annotations"] == [{"Key": "source", "Value": "upload"}]
    assert row["DurationNanos"] == 250_000_000


def test_a_push_sent_twice_is_one_row_with_one_id() -> None:
    builder, elsewhere = SegmentBuilder(1), SegmentBuilder(2)
    first = builder.add("a", push(zone="z"), simple())
    again = builder.add("a", dict(reversed(push(zone="z").items())), simple())
    assert again.is_repeat
    assert elsewhere.add("a", push(zone="z"), simple()).id == first.id == again.id
    (dataset,) = read_segment(builder.build(SEGMENT_ID))
    assert len(dataset.rows) == 2


def test_ids_differ_when_tenant_labels_time_or_content_do() -> None:
    builder = SegmentBuilder(1)
    added = [
        builder.add("a", push(), simple()),
        builder.add("b", push(), simple()),
        builder.add("a", push(zone="z"), simple()),
        builder.add("a", push(), simple(5, TIME_NS + 1)),
        builder.add("a", push(), simple(6)),
    ]
    assert len({one.id for one in added}) == len(added)


def test_an_id_is_the_same_on_every_machine() -> None:
    assert SegmentBuilder(1).add("a", push(), simple()).id.hex() == "205145df75ab0492da282912d3b93091"


def test_the_same_pushes_give_the_same_bytes() -> None:
    built = []
    for _ in range(2):
        builder = SegmentBuilder(1)
        builder.add("a", push(), simple())
        builder.add("b", push(), simple(9))
        built.append(builder.build(SEGMENT_ID))
    assert built[0] == built[1]


def test_a_profile_of_nothing_adds_nothing() -> None:
    builder = SegmentBuilder(1)
    assert builder.add("a", push(), profile_of(([LEAF], [0, 0], {}))).row_count == 0
    with pytest.raises(ValueError, match="without profiles"):
        builder.build(SEGMENT_ID)


@pytest.mark.parametrize("tenant", ["", "a/b", "..", "x" * 200])
def test_a_tenant_that_cannot_be_a_path_part_is_refused(tenant: str) -> None:
    with pytest.raises(BadBlockName):
        SegmentBuilder(1).add(tenant, push(), simple())


def test_a_refused_profile_leaves_the_segment_as_it_was() -> None:
    builder = SegmentBuilder(1)
    builder.add("a", push(), simple())
    with pytest.raises(BadProfile):
        builder.add("b", push(), simple(), annotations=[("key", "\udfff")])
    with pytest.raises(BadProfile):
        builder.add("b", push(), simple(time_ns=-5))
    assert len(read_segment(builder.build(SEGMENT_ID))) == 1


# What the real pprof files give, one dataset each: rows as type -> (samples, total); functions, locations, nodes;
# distinct stacks; whether symbols are missing.
KNOWN = {
    "dotnet-3": ({"cpu": (17, 5653000000)}, (41, 41, 78), 17, True),
    "go-cpu-small": ({"cpu": (7, 470000000), "samples": (7, 47)}, (28, 29, 37), 7, False),
    "go-cpu": ({"cpu": (48, 500000000), "samples": (48, 50)}, (247, 284, 399), 48, False),
    "go-heap-truncated-1": ({"inuse_space": (12015, 323743891097728)}, (4082, 8197, 39944), 12015, False),
    "go-heap": (
        {
            "alloc_objects": (585, 196607841),
            "alloc_space": (585, 13434386318),
            "inuse_objects": (76, 22156072),
            "inuse_space": (76, 1602645059),
        },
        (506, 718, 1713),
        561,
        False,
    ),
    "java-cpu": ({"cpu": (171, 5020648123)}, (201, 201, 270), 171, True),
    "java-kafka-alloc-bytes-from-jfr": ({"alloc_in_new_tlab_bytes": (319, 1606418432)}, (675, 941, 1818), 319, False),
    "java-kafka-cpu-from-jfr": ({"cpu": (359, 4780000000)}, (853, 1099, 1850), 359, False),
    "malformed-no-addr-no-line": ({"cpu": (1, 52631578)}, (4, 5, 6), 1, True),
    "nodejs-cpu": ({"wall": (27, 39670000)}, (78, 87, 177), 27, True),
    "nodejs-heap": ({"inuse_objects": (8, 100498), "inuse_space": (8, 8357762)}, (63, 67, 87), 8, True),
    "optional-span-id": ({"cpu": (63, 1320000000), "samples": (63, 132)}, (115, 156, 221), 63, False),
    "python-cpu": ({"samples": (438, 234084)}, (199, 463, 872), 438, True),
}


def segment_of_file(path: Path, labels: dict[str, str], time_ns: int = 0) -> tuple[bytes, BlockMeta]:
    profile = pprof.parse_profile(path.read_bytes())
    profile.time_ns = time_ns or profile.time_ns
    builder = SegmentBuilder(1)
    builder.add("anonymous", labels, profile, received_at_ns=TIME_NS)
    return builder.build(SEGMENT_ID)


def row_type(dataset: ReadDataset, row: dict[str, Any]) -> str:
    return dict(dataset.series[row["SeriesIndex"]].labels)[b"__type__"].decode()


@pytest.mark.foreign_data
@pytest.mark.parametrize("name", KNOWN)
def test_real_files_give_the_known_rows_and_symbols(foreign_data: Path, name: str) -> None:
    (dataset,) = read_segment(segment_of_file(foreign_data / f"profiles/pprof/{name}.pb.gz", push()))
    rows, symbol_counts, stack_count, is_unsymbolized = KNOWN[name]
    assert {row_type(dataset, row): (len(row["Samples"]), row["TotalValue"]) for row in dataset.rows} == rows
    symbols = dataset.symbols
    assert (len(symbols.functions), len(symbols.locations), len(symbols.trees[0].parents)) == symbol_counts
    assert symbols.trees[0].stack_count == stack_count
    assert ((("service_name", "shop"), ("__unsymbolized__", "true")) in dataset.meta.labels) == is_unsymbolized
    for row in dataset.rows:
        assert sum(sample["Value"] for sample in row["Samples"]) == row["TotalValue"]
        stack_ids = [sample["StacktraceID"] for sample in row["Samples"]]
        assert stack_ids == sorted(stack_ids)


def raw_stacks(profile: Profile, position: int) -> Counter[tuple[bytes, ...]]:
    """The values of one sample type per stack of function names, straight from the tables of a well-formed file."""
    samples, locations = profile.samples, profile.locations
    names = {
        id_: profile.strings[name]
        for id_, name in zip(profile.functions.ids.tolist(), profile.functions.names.tolist(), strict=True)
    }
    frames = {
        id_: [
            names[function]
            for function in locations.line_function_ids[
                locations.line_starts[i] : locations.line_starts[i + 1]
            ].tolist()
        ]
        for i, id_ in enumerate(locations.ids.tolist())
    }
    found: Counter[tuple[bytes, ...]] = Counter()
    for i in range(len(samples)):
        ids = samples.location_ids[samples.location_starts[i] : samples.location_starts[i + 1]].tolist()
        value = int(samples.values[samples.value_starts[i] + position])
        if value:
            found[tuple(name for id_ in ids for name in frames[id_])] += value
    return found


@pytest.mark.slow
@pytest.mark.foreign_data
@pytest.mark.parametrize("name", sorted({*KNOWN, "go-cpu-span-labels"} - {"dotnet-3", "malformed-no-addr-no-line"}))
def test_real_files_come_out_with_equal_stacks(foreign_data: Path, name: str) -> None:
    path = foreign_data / f"profiles/pprof/{name}.pb.gz"
    raw = pprof.parse_profile(path.read_bytes())
    (dataset,) = read_segment(segment_of_file(path, push()))
    found: dict[str, Counter[tuple[bytes, ...]]] = {}
    for row in dataset.rows:
        found.setdefault(row_type(dataset, row), Counter()).update(row_stacks(dataset, row))
    for position, (kind, _) in enumerate(raw.sample_types):
        assert found[raw.strings[kind].decode()] == raw_stacks(raw, position)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


@pytest.mark.foreign_data
def test_a_real_file_gives_the_index_bytes_of_a_real_block(foreign_data: Path) -> None:
    path = foreign_data / "profiles/pprof/go-cpu-span-labels.pb.gz"
    data, meta = segment_of_file(path, SPAN_PUSH, TIME_NS)
    (dataset,) = read_segment((data, meta))
    block = foreign_data / "profiles/objects/samples/01JKT426996H1XWCX1M1ZQFRJ6/block.bin"
    stored = block.read_bytes()
    stored_meta = decode_footer(stored, len(stored))
    original = read_dataset(stored, stored_meta.datasets[0])
    assert dataset.sections[1] == original.sections[1]
    assert sha(dataset.sections[1]) == "077a251af786c4f0"
    start, size = meta.datasets[1].section_bounds()[0]
    assert sha(data[start : start + size]) == "5ce436018c0696f5"
    assert [len(row["Samples"]) for row in dataset.rows] == [150, 325, 5, 150, 325, 5]
    for row, other in zip(dataset.rows, original.rows, strict=True):
        assert row_stacks(dataset, row) == row_stacks(original, other)
        assert row["DurationNanos"] == other["DurationNanos"]


@pytest.mark.foreign_data
def test_a_real_heap_profile_gives_the_symbols_another_writer_stored(foreign_data: Path) -> None:
    (dataset,) = read_segment(segment_of_file(foreign_data / "profiles/pprof/go-heap.pb.gz", push()))
    stored = decode_symbols((foreign_data / "profiles/symdb/symbols-v3.symdb").read_bytes())[0]
    assert dataset.symbols.strings == stored.strings
    assert dataset.symbols.mappings == stored.mappings
    assert dataset.symbols.functions == stored.functions
    assert dataset.symbols.locations == stored.locations
    # The other writer began a second tree after so many nodes; up to there the numbers are the same.
    first = stored.trees[0]
    assert dataset.symbols.trees[0].parents[: len(first.parents)] == first.parents
    assert dataset.symbols.trees[0].locations[: len(first.locations)] == first.locations


def test_segments_merge_into_a_block_with_the_same_stacks(tmp_path: Path) -> None:
    store, builders = LocalStore(tmp_path / "bucket"), [SegmentBuilder(1) for _ in range(3)]
    for i in range(9):
        builders[i % 3].add("a", push("shop"), simple(5 + i, TIME_NS + i))
    builders[2].add("a", push("shop"), simple(5, TIME_NS))
    sources, expected = [], Counter[tuple[bytes, ...]]()
    for i, builder in enumerate(builders):
        data, meta = builder.build(ulids.make(TIME_NS // 10**6, bytes([i] * 10)))
        key = block_key(1, "", 0, meta.id)
        store.put(key, data)
        sources.append(SourceObject(id=meta.id, key=key, size=len(data), metadata=encode_metadata(meta)))
        (dataset,) = read_segment((data, meta))
        for row in dataset.rows:
            expected.update(row_stacks(dataset, row))
    expected.subtract({(b"leaf", b"root"): 6, (b"middle", b"root"): 12})  # The push that is in two segments.
    spec = ProfileMergeSpec(job="j", tenant="", shard=1, level=0, sources=tuple(sources))
    result = merge.run(spec, store, scratch=Scratch(tmp_path / "scratch"))
    (block,) = result.blocks
    merged = store.get(block.key)
    (dataset,) = read_segment((merged, decode_footer(merged, len(merged))))
    found = Counter[tuple[bytes, ...]]()
    for row in dataset.rows:
        found.update(row_stacks(dataset, row))
    assert (result.rows_read, result.rows_dropped) == (20, 2)
    assert found == expected


def mutated(message: bytes, draw: random.Random) -> bytes:
    data = bytearray(message)
    for _ in range(draw.randrange(1, 4)):
        data[draw.randrange(len(data))] = draw.choice([0, 1, 2, 5, 0x7F, 0x80, 0xFF, draw.randrange(256)])
    return bytes(data)


@pytest.mark.slow
def test_a_damaged_profile_is_refused_or_makes_a_readable_segment() -> None:
    draw, refused, stored = random.Random(20240711), 0, 0
    labels = {"thread": "main", "span_id": "0100000000000000"}
    message = encode_profile(profile_of(([LEAF, ROOT], [1, 3], labels), ([MIDDLE, ROOT], [2, 4], {})), compress=False)
    for _ in range(400):
        builder = SegmentBuilder(1)
        try:
            added = builder.add("a", push(), pprof.parse_profile(mutated(message, draw)), received_at_ns=TIME_NS)
        except BadObject as error:
            refused += error.section == "pprof"
            continue
        if added.row_count:
            stored += sum(len(dataset.rows) == added.row_count for dataset in read_segment(builder.build(SEGMENT_ID)))
    assert refused > 50
    assert stored > 50


def foreign_profiles(foreign_data: Path) -> Iterator[Profile]:
    for path in sorted((foreign_data / "profiles/pprof").iterdir()):
        yield pprof.parse_profile(path.read_bytes())


@pytest.mark.slow
@pytest.mark.foreign_data
def test_many_real_profiles_share_a_segment_without_mixing(foreign_data: Path) -> None:
    builder = SegmentBuilder(9, "writer-1")
    profiles = list(foreign_profiles(foreign_data))
    added = [
        builder.add(f"tenant-{i % 3}", push(f"service-{i % 4}"), profile, received_at_ns=TIME_NS)
        for i, profile in enumerate(profiles)
    ]
    datasets = read_segment(builder.build(SEGMENT_ID))
    assert sum(len(dataset.rows) for dataset in datasets) == sum(one.row_count for one in added) == builder.row_count
    counted = sum(len(row["Samples"]) for dataset in datasets for row in dataset.rows)
    assert counted == sum(one.sample_count for one in added) == builder.sample_count
    assert {(dataset.meta.tenant, dataset.meta.name) for dataset in datasets} == {
        (f"tenant-{i % 3}", f"service-{i % 4}") for i in range(len(profiles))
    }
