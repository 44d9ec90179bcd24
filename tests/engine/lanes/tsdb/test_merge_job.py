"""A merge job from specification to uploaded result: what it writes, what it says of damage, and what it leaves."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.errors import BadObject, MergeCancelled, MergeRefused
from engine.core.scratch_folders import ScratchFull
from engine.formats.prometheus.errors import Inconsistent
from engine.formats.prometheus.meta import decode_meta
from engine.lanes.tsdb.jobs import TsdbMergeResult, TsdbMergeSpec
from engine.lanes.tsdb.merge import merge_job
from engine.lanes.tsdb.merge.merge_job import run, source_bytes, withdraw
from engine.lanes.tsdb.merge.verification import verify_block
from engine.lanes.tsdb.results import read_tsdb_result
from engine.protocol.messages import Progress
from engine.storage import ObjectStore, open_store
from tests.tsdb_blocks import (
    FOLDER,
    START_MS,
    THANOS,
    block_id,
    download,
    merge_spec,
    put_block,
    replica,
    replicas_job,
    samples,
    write_block,
)

UPLOADED_AT = 1_700_007_300.0


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


@pytest.fixture
def spec(store: ObjectStore, tmp_path: Path) -> TsdbMergeSpec:
    return replicas_job("job", store, tmp_path / "blocks")


def merged(spec: TsdbMergeSpec, store: ObjectStore, scratch: Path) -> TsdbMergeResult:
    return run(spec, store, scratch=scratch, clock=lambda: UPLOADED_AT)


def left_in(scratch: Path) -> list[Path]:
    return [path for path in scratch.iterdir() if path.is_dir()] if scratch.is_dir() else []


def result_keys(spec: TsdbMergeSpec, store: ObjectStore) -> list[str]:
    prefix = f"{FOLDER}{spec.result_id()}/"
    return [info.key.removeprefix(prefix) for info in store.list(prefix)]


def test_the_result_is_uploaded_but_for_its_meta_and_holds_every_sample_once(
    spec: TsdbMergeSpec, store: ObjectStore, scratch: Path, tmp_path: Path
) -> None:
    result = merged(spec, store, scratch)
    assert result.block is not None
    assert result.block.id == spec.result_id()
    assert read_tsdb_result(json.loads(json.dumps(result.to_json()))) == result
    assert result_keys(spec, store) == ["chunks/000001", "index"]
    assert left_in(scratch) == []

    block = download(store, result.block.id, result.block.meta, tmp_path / "downloaded")
    verify_block(block)
    expected = {
        each: sorted(set(one) | set(other))
        for (each, one), other in zip(replica(0).items(), replica(1).values(), strict=True)
    }
    assert samples(block) == expected
    read = 2 * sum(map(len, replica(0).values()))
    assert abs(result.samples_read - read) <= 2 * len(expected)
    assert result.samples_read - result.samples_dropped == sum(map(len, expected.values()))
    assert result.series_read == 2 * len(expected)


def test_the_meta_has_the_fields_that_other_systems_read(
    spec: TsdbMergeSpec, store: ObjectStore, scratch: Path
) -> None:
    block = merged(spec, store, scratch).block
    assert block is not None
    meta = decode_meta(block.meta)
    assert meta.compaction.level == 2
    assert set(meta.compaction.sources) == {source.id for source in spec.sources}
    assert [parent.ulid for parent in meta.compaction.parents] == [source.id for source in spec.sources]
    assert meta.thanos is not None
    assert THANOS.items() <= meta.thanos.items()
    sizes = [
        {"rel_path": file.name, "size_bytes": file.size} for file in sorted(block.files, key=lambda file: file.name)
    ]
    assert meta.thanos["files"] == [*sizes, {"rel_path": "meta.json"}]
    assert meta.thanos["upload_time"] == "2023-11-15T00:15:00Z"
    assert sorted(meta.thanos["index_stats"]) == ["chunk_max_size", "series_max_size"]  # type: ignore[call-overload]
    without = merged(replace(spec, thanos=None, fence=8), store, scratch).block
    assert without is not None
    assert decode_meta(without.meta).thanos is None


def test_two_workers_on_one_job_write_two_blocks_of_equal_bytes(
    spec: TsdbMergeSpec, store: ObjectStore, scratch: Path
) -> None:
    first, second = (merged(each, store, scratch).block for each in (spec, replace(spec, fence=8)))
    assert first is not None
    assert second is not None
    assert first.id != second.id
    assert first.files == second.files


def test_the_partitions_of_a_group_hold_each_series_once(
    spec: TsdbMergeSpec, store: ObjectStore, scratch: Path, tmp_path: Path
) -> None:
    parts = [replace(spec, partition=number, partitions=4) for number in range(4)]
    blocks = [merged(part, store, scratch).block for part in parts]
    found = [samples(download(store, each.id, each.meta, tmp_path / "parts")) for each in blocks if each]
    assert len({block.id for block in blocks if block}) == len(found)
    assert sum(map(len, found)) == len(replica(0))
    whole = merged(spec, store, scratch).block
    assert whole is not None
    union = {series: values for part in found for series, values in part.items()}
    assert union == samples(download(store, whole.id, whole.meta, tmp_path / "whole"))


@pytest.mark.parametrize("partition", [0, 1])
def test_a_source_that_is_not_its_declared_part_is_refused_in_every_part(
    store: ObjectStore, scratch: Path, tmp_path: Path, partition: int
) -> None:
    blocks = [write_block(tmp_path, block_id(number), replica(number)) for number in range(2)]
    document = json.loads((blocks[0] / "meta.json").read_text())
    place = {"partitioned_group_id": 1, "partition_count": 2, "partition_id": 0}
    document["thanos"] = THANOS | {"extensions": {"partition_info": place}}
    (blocks[0] / "meta.json").write_text(json.dumps(document))
    sources = [put_block(store, block) for block in blocks]
    spec = merge_spec("job", store, sources, partition=partition, partitions=2)
    for refuse in (lambda: merged(spec, store, scratch), lambda: verify_block(blocks[0])):
        with pytest.raises(Inconsistent, match="partition 0 of 2") as refused:
            refuse()
        assert refused.value.object_name.endswith(block_id(0))
        assert (refused.value.section, refused.value.offset > 0) == ("index", True)


def test_a_partition_without_a_series_has_no_block(store: ObjectStore, scratch: Path, tmp_path: Path) -> None:
    spec = replicas_job("job", store, tmp_path / "blocks", series=1, partitions=2)
    blocks = [merged(replace(spec, partition=number), store, scratch).block for number in range(2)]
    assert sorted(block is None for block in blocks) == [False, True]
    assert left_in(scratch) == []


def flip(store: ObjectStore, key: str, position: int) -> None:
    data = bytearray(store.get(key))
    data[position] ^= 0xFF
    store.put(key, bytes(data))


def cut(store: ObjectStore, key: str) -> None:
    store.put(key, store.get(key)[:-1])


def changed_meta(spec: TsdbMergeSpec, change: Callable[[dict[str, object]], object]) -> TsdbMergeSpec:
    """Return the job with something else in the ``meta.json`` of its second source."""
    first, second = spec.sources
    document = json.loads(second.meta)
    change(document)
    return replace(spec, sources=(first, replace(second, meta=json.dumps(document).encode())))


Damage = Callable[[TsdbMergeSpec, ObjectStore, str], TsdbMergeSpec | None]
DAMAGE: dict[str, tuple[str, Damage]] = {
    "a flipped bit in a chunk": ("chunks/000001", lambda spec, store, at: flip(store, f"{at}/chunks/000001", 40)),
    "a flipped bit in the symbols": ("index", lambda spec, store, at: flip(store, f"{at}/index", 20)),
    "a flipped bit in the table of contents": ("index", lambda spec, store, at: flip(store, f"{at}/index", -10)),
    "an index that is shorter": ("index", lambda spec, store, at: cut(store, f"{at}/index")),
    "a missing index": ("index", lambda spec, store, at: store.delete(f"{at}/index")),
    "a missing chunk file": ("chunks/000001", lambda spec, store, at: store.delete(f"{at}/chunks/000001")),
    "a name that is not its own": (
        "meta.json",
        lambda spec, store, at: changed_meta(spec, lambda meta: meta.update(ulid=spec.sources[0].id)),
    ),
    "an unknown version": (
        "meta.json",
        lambda spec, store, at: changed_meta(spec, lambda meta: meta.update(version=2)),
    ),
    "no JSON": (
        "meta.json",
        lambda spec, store, at: replace(spec, sources=(spec.sources[0], replace(spec.sources[1], meta=b"{"))),
    ),
    "statistics that lie": (
        "meta.json",
        lambda spec, store, at: changed_meta(spec, lambda meta: meta["stats"].update(numSamples=1)),  # type: ignore[attr-defined]
    ),
    "times that lie": (
        "chunks/000001",
        lambda spec, store, at: changed_meta(spec, lambda meta: meta.update(maxTime=START_MS + 1000)),
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_an_error_that_names_block_and_file_and_leaves_nothing(
    spec: TsdbMergeSpec, store: ObjectStore, scratch: Path, kind: str
) -> None:
    file, damage = DAMAGE[kind]
    bad = f"{FOLDER}{spec.sources[1].id}"
    spec = damage(spec, store, bad) or spec
    with pytest.raises(BadObject) as caught:
        merged(spec, store, scratch)
    assert (caught.value.object_name, caught.value.section) == (bad, file)
    assert result_keys(spec, store) == []
    assert left_in(scratch) == []


def test_a_source_outside_of_the_interval_is_refused(spec: TsdbMergeSpec, store: ObjectStore, scratch: Path) -> None:
    with pytest.raises(MergeRefused, match=spec.sources[0].id):
        merged(replace(spec, range_end_ms=spec.range_end_ms - 1), store, scratch)


def test_too_little_scratch_room_is_an_error_before_any_download(
    spec: TsdbMergeSpec, store: ObjectStore, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(scratch.parent)
    monkeypatch.setattr("engine.core.scratch_folders.shutil.disk_usage", lambda path: usage._replace(free=1000))
    before = store.usage.requests()
    with pytest.raises(ScratchFull, match="1000 bytes are free") as caught:
        merged(spec, store, scratch)
    assert caught.value.needed == 2 * source_bytes(spec) + merge_job.SPARE_BYTES
    assert store.usage.requests() == before


def test_a_full_disk_is_an_error_that_names_the_scratch_folder(
    spec: TsdbMergeSpec, store: ObjectStore, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(merge_job, "merge_blocks", full)
    with pytest.raises(ScratchFull, match="not enough space in the scratch folder"):
        merged(spec, store, scratch)
    assert left_in(scratch) == []


def test_progress_counts_bytes_in_every_phase(spec: TsdbMergeSpec, store: ObjectStore, scratch: Path) -> None:
    told: list[Progress] = []
    result = run(spec, store, scratch=scratch, progress=told.append)
    assert result.block is not None
    total, size = source_bytes(spec), sum(file.size for file in result.block.files)
    phases = [(phase, list(group)) for phase, group in itertools.groupby(told, lambda each: each.phase)]
    assert [phase for phase, _ in phases] == ["download", "merge", "upload"]
    for phase, group in phases:
        assert [each.done for each in group] == sorted(each.done for each in group)
        assert group[-1] == Progress(done=group[-1].total, total=size if phase == "upload" else total, phase=phase)


def test_an_unwanted_job_stops_wherever_it_is(spec: TsdbMergeSpec, store: ObjectStore, scratch: Path) -> None:
    """Ask again and again, each time one question later, until nothing is left to stop."""
    for asked in itertools.count():
        questions = itertools.count()
        try:
            run(
                spec,
                store,
                scratch=scratch,
                cancelled=lambda questions=questions, asked=asked: next(questions) >= asked,
            )  # type: ignore[misc]
        except MergeCancelled:
            assert left_in(scratch) == []
            assert "meta.json" not in result_keys(spec, store)
            withdraw(spec, store)
            assert result_keys(spec, store) == []
        else:
            break
    assert asked >= 6


def test_what_was_reported_is_not_withdrawn(spec: TsdbMergeSpec, store: ObjectStore, scratch: Path) -> None:
    block = merged(spec, store, scratch).block
    assert block is not None
    store.put(f"{FOLDER}{block.id}/meta.json", block.meta)
    withdraw(spec, store)
    assert result_keys(spec, store) == ["chunks/000001", "index", "meta.json"]


KILLED = """
import json, os, signal, sys, threading
from pathlib import Path
from engine.lanes.tsdb.jobs import TsdbMergeSpec
from engine.storage import open_store
from engine.storage.local import LocalStore, LocalWriter
from engine.formats.prometheus.errors import Inconsistent
from engine.lanes.tsdb.merge.merge_job import run

spec = TsdbMergeSpec.from_json(json.loads(Path(sys.argv[1]).read_text()))
step = int(sys.argv[3])
kept = LocalWriter.write, LocalWriter.commit
one_by_one = threading.Lock()

def counted(method):
    def call(*arguments):
        global step
        with one_by_one:
            step -= 1
            if step < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*arguments)
    return call

LocalWriter.write, LocalWriter.commit = map(counted, kept)
run(spec, open_store(spec.bucket_url), scratch=Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_a_kill_in_the_middle_of_an_upload_leaves_nothing_that_others_see(
    spec: TsdbMergeSpec, store: ObjectStore, scratch: Path, tmp_path: Path
) -> None:
    order = tmp_path / "spec.json"
    order.write_text(json.dumps(spec.to_json()))
    seen = set()
    for step in range(4):  # two files, each written and committed
        command = [sys.executable, "-c", KILLED, str(order), str(scratch), str(step)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        keys = result_keys(spec, store)
        assert set(keys) < {"chunks/000001", "index"}
        seen.update(keys)
        assert left_in(scratch)
        withdraw(spec, store)
    assert seen
    block = merged(spec, store, scratch).block
    assert block is not None
    assert left_in(scratch) == []
