"""The question is about the service that is in most objects, and the profile type people run_question for first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.core import ulids
from engine.formats.pprof.pprof import parse_profile
from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.profile_block.container.object_names import block_key
from engine.formats.profile_block.model import BlockMeta
from engine.ingest.segments.segment import SegmentBuilder
from engine.lanes.profiles.jobs import DeleteMask
from engine.storage import ObjectStore, open_store
from webadmin.embedded.demo.figures import LiveBlock
from webadmin.embedded.demo.foreign import NothingToCompact
from webadmin.embedded.demo.plan import Recording
from webadmin.embedded.demo.question import Question, choose_dataset, choose_profile_type, choose_question, run_question

TIME_NS = 1_790_000_000_000_000_000


def block(recordings: list[Recording], *datasets: tuple[str, int]) -> LiveBlock:
    """A segment with a profile per (tenant, number of the service)."""
    builder = SegmentBuilder(1)
    for tenant, number in datasets:
        recording = recordings[number]
        labels = {"__name__": recording.name, "service_name": recording.service}
        builder.add(tenant, labels, parse_profile(recording.windows[0].read_bytes()))
    meta: BlockMeta = builder.build("01JKT3DJRETWN25NKEFZNEP1V0")[1]
    return LiveBlock(key="k", level=0, size=meta.size, metadata=encode_metadata(meta), visible=all_of(meta))


def stored_segment(recordings: list[Recording], number: int, store: ObjectStore) -> LiveBlock:
    """A segment in the store: those with even numbers are of the first two services, the others of the last two."""
    builder = SegmentBuilder(1 + number % 2)
    for recording in recordings[2 * (number % 2) :][:2]:
        for tenant in ("orchard", "harbour"):
            window = recording.windows[number % len(recording.windows)]
            profile = replace(parse_profile(window.read_bytes()), time_ns=TIME_NS + number)
            labels = {"__name__": recording.name, "service_name": recording.service}
            builder.add(tenant, labels, profile)
    data, meta = builder.build(ulids.new(TIME_NS // 1_000_000))
    key = block_key(meta.shard, meta.tenant, meta.compaction_level, meta.id)
    store.put(key, data)
    return LiveBlock(key=key, level=0, size=meta.size, metadata=encode_metadata(meta), visible=all_of(meta))


def all_of(meta: BlockMeta) -> dict[int, tuple[DeleteMask, ...]]:
    """What an index shows that hides nothing."""
    return dict.fromkeys(range(len(meta.datasets)), ())


def test_the_service_in_most_objects_is_queried(recordings: list[Recording], tmp_path: Path) -> None:
    blocks = [block(recordings, ("a", 0), ("b", 1)), block(recordings, ("b", 1)), block(recordings, ("b", 2))]
    assert choose_dataset(blocks) == ("b", recordings[1].service)


def test_no_objects_with_profiles_is_an_error() -> None:
    with pytest.raises(NothingToCompact):
        choose_dataset([])


def test_profile_types_are_read_from_the_objects_of_the_chosen_service(
    recordings: list[Recording], tmp_path: Path
) -> None:
    store = open_store(f"file://{tmp_path}/objects")
    blocks = [stored_segment(recordings, number, store) for number in range(5)]
    question = choose_question(blocks, store)
    assert question.profile_type == "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
    answer = run_question(question, blocks, store)
    assert (answer.objects_opened, answer.profiles) == (3, 3)  # of five segments three are of the chosen services
    # Each window has stacks of 1, 2 and 3 frames that take 10, 20 and 30 ms.
    assert answer.total_value == 3 * 60_000_000
    assert sum(row.self_value for row in answer.functions) == answer.total_value
    mask = DeleteMask(index=1, tenant=question.tenant, selector='{service_name=~".+"}')
    masked = [replace(one, visible=dict.fromkeys(one.visible, (mask,))) for one in blocks]
    assert run_question(question, masked, store).total_value == 0, "hidden by a delete request, not rewritten yet"
    with pytest.raises(NothingToCompact):
        choose_question([replace(one, visible={}) for one in blocks], store)


def test_cpu_profiles_are_preferred_to_memory() -> None:
    memory, cpu, goroutines = "memory:inuse_space:bytes::", "process_cpu:cpu:nanoseconds:cpu:nanoseconds", "g:g:count::"
    assert choose_profile_type([memory, goroutines, cpu]) == cpu
    assert choose_profile_type([goroutines, memory]) == memory
    assert choose_profile_type([goroutines]) == goroutines


def test_the_unit_is_read_from_the_profile_type() -> None:
    assert Question(tenant="a", service="s", profile_type="memory:inuse_space:bytes::").unit == "bytes"
    assert Question(tenant="a", service="s", profile_type="odd").unit == ""
