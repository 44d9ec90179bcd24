"""Where each layout has its folders, marks and tenants, and what a result's meta.json says there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.core import ulids
from engine.core.errors import BadBlockName, BadObject, MergeRefused
from engine.formats.profile_block.container.object_names import check_tenant
from engine.formats.prometheus.meta import BlockMeta, BlockStats, Compaction
from engine.lanes.tsdb.buckets.layout import ThanosLayout, UnknownLayout, block_key, is_ulid, layout
from engine.lanes.tsdb.buckets.model import MarkKind
from engine.lanes.tsdb.buckets.sections import IndexStats, PartitionPlace, completed_section, result_section
from engine.lanes.tsdb.jobs import BlockFile
from engine.storage import open_store
from tests.engine.lanes.tsdb.factories import ULID


def meta(labels: object = None, resolution: object = 0, **more: object) -> BlockMeta:
    thanos = {"labels": labels, "downsample": {"resolution": resolution}} | more
    return BlockMeta(ULID, 0, 1, BlockStats(), Compaction(1, (ULID,)), thanos)


def test_folders_of_a_cortex_bucket_are_its_tenants_and_odd_names_are_counted(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    odd = ("with space", "colon:name", "é", "%2e", ULID, "__markers__", "a" * 151)
    for name in ("b", "a-1", *odd):
        store.put(f"{name}/x", b"")
    store.put("top-level-object", b"")
    found = layout("cortex").folders(store)
    assert found.folders == ("a-1/", "b/")
    assert found.ignored == len(odd)


def test_a_thanos_bucket_is_one_folder(tmp_path: Path) -> None:
    assert layout("thanos").folders(open_store(str(tmp_path))).folders == ("",)


def test_there_are_two_layouts() -> None:
    with pytest.raises(UnknownLayout, match="cortex or thanos"):
        layout("mimir")


@pytest.mark.parametrize("tenant", ["", "..", "a/b", "__markers__", ULID])
def test_a_name_that_leads_elsewhere_is_no_cortex_tenant(tenant: str) -> None:
    with pytest.raises(BadBlockName):
        layout("cortex").folder(tenant)


def test_keys_of_a_block_and_its_marks() -> None:
    cortex, thanos = layout("cortex"), layout("thanos")
    folder = cortex.folder("t")
    assert block_key(folder, ULID, "chunks/000001") == f"t/{ULID}/chunks/000001"
    assert cortex.mark_keys(folder, ULID, MarkKind.DELETION) == (
        f"t/{ULID}/deletion-mark.json",
        f"t/markers/{ULID}-deletion-mark.json",
    )
    assert thanos.mark_keys("", ULID, MarkKind.NO_COMPACT) == (f"{ULID}/no-compact-mark.json",)
    assert cortex.index_key(folder) == "t/bucket-index.json.gz"
    with pytest.raises(BadBlockName):
        block_key(folder, "../elsewhere", "index")


def test_the_group_key_is_the_one_of_the_other_systems() -> None:
    assert layout("cortex").group_key(meta()) == "0@17241709254077376921"
    assert layout("cortex").group_key(meta({"__ingester_id__": "ingester-1"})) == "0@17241709254077376921"
    assert layout("cortex").group_key(meta({"a": "b"}, 300_000)).startswith("300000@")


def test_replicas_are_one_tenant_and_other_labels_another() -> None:
    thanos = layout("thanos", ["replica"])
    a = thanos.tenant("", meta({"cluster": "eu/1", "replica": "a"}))
    assert a == thanos.tenant("", meta({"replica": "b", "cluster": "eu/1"}))
    assert a.startswith("cluster_eu_1.")
    assert a != thanos.tenant("", meta({"cluster": "eu-1"}))
    assert thanos.tenant("", meta({"cluster": "eu_1"})) != a
    assert thanos.tenant("", meta()) == "unlabelled.ef46db3751d8e999"
    long = thanos.tenant("", meta({"n" * 300: "ü" * 300}))
    for name in (a, long):
        assert check_tenant(name) == name


def test_no_label_is_taken_for_a_replica_s_unless_it_is_named() -> None:
    assert layout("thanos").labels(meta({"replica": "b", "prometheus_replica": "c"})) == {
        "prometheus_replica": "c",
        "replica": "b",
    }
    chosen = layout("thanos", ["side"])
    assert isinstance(chosen, ThanosLayout)
    assert chosen.labels(meta({"side": "a", "replica": "b"})) == {"replica": "b"}


@pytest.mark.parametrize("labels", ["text", ["a"], {"a": 1}, {"a": None}])
def test_labels_that_are_none_are_an_error_of_the_block(labels: object) -> None:
    with pytest.raises(BadObject, match=r"thanos\.labels"):
        layout("thanos").tenant("", meta(labels))


@pytest.mark.parametrize("resolution", ["5m", -1, True, None, 1.5])
def test_a_resolution_that_is_none_is_an_error_of_the_block(resolution: object) -> None:
    with pytest.raises(BadObject, match="resolution"):
        layout("thanos").group_key(meta({}, resolution))


def test_a_result_has_its_labels_place_files_and_sizes() -> None:
    sources = [meta({"a": "b", "__ingester_id__": name}) for name in "xy"]
    place = PartitionPlace(group_id=7, partition=1, partitions=4, created_s=1_700_000_000)
    section = result_section(layout("cortex"), sources, range_ms=7_200_000, place=place)
    files = [
        BlockFile(name="index", size=5),
        BlockFile(name="chunks/000002", size=3),
        BlockFile(name="chunks/000001", size=4),
    ]
    stats = IndexStats(series_max_size=64, chunk_max_size=200)
    assert completed_section(section, files, stats=stats, uploaded_at_s=1_700_000_000.9) == {
        "version": 1,
        "labels": {"a": "b"},
        "downsample": {"resolution": 0},
        "source": "compactor",
        "extensions": {
            "partition_info": {
                "partitioned_group_id": 7,
                "partition_count": 4,
                "partition_id": 1,
                "partitioned_group_creation_time": 1_700_000_000,
            },
            "time_range": 7_200_000,
        },
        "segment_files": ["000001", "000002"],
        "files": [
            {"rel_path": "chunks/000001", "size_bytes": 4},
            {"rel_path": "chunks/000002", "size_bytes": 3},
            {"rel_path": "index", "size_bytes": 5},
            {"rel_path": "meta.json"},
        ],
        "upload_time": "2023-11-14T22:13:20Z",
        "index_stats": {"series_max_size": 64, "chunk_max_size": 200},
    }


def test_sources_with_other_labels_or_resolution_are_not_merged() -> None:
    for other in (meta({"a": "c"}), meta({"a": "b"}, 300_000)):
        with pytest.raises(MergeRefused):
            result_section(layout("thanos"), [meta({"a": "b"}), other])


@given(
    st.text(st.sampled_from("0178ILOUZaé/\n "), max_size=27)
    | st.text(st.sampled_from(ulids.ALPHABET), min_size=25, max_size=27)
)
@example(ULID)
@example(ULID + "\n")
def test_a_ulid_is_what_can_be_taken_apart_as_one(name: str) -> None:
    try:
        ulids.parse(name)
    except BadBlockName:
        assert not is_ulid(name)
    else:
        assert is_ulid(name)
