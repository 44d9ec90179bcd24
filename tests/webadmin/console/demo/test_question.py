"""The question is about the service that is in most objects, and the profile type people ask for first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.profiles.metadata import encode_metadata, read_footer
from engine.profiles.model import BlockMeta
from engine.profiles.pprof import parse_profile
from engine.profiles.segment import SegmentBuilder
from engine.protocol.profile_jobs import DeleteMask
from engine.storage import open_store
from webadmin.console.demo.figures import LiveBlock
from webadmin.console.demo.foreign import NothingToCompact
from webadmin.console.demo.plan import Recording, plan_segments
from webadmin.console.demo.question import Question, ask, choose_dataset, choose_profile_type, choose_question
from webadmin.console.demo.segments import write_segments


def block(recordings: list[Recording], *datasets: tuple[str, int]) -> LiveBlock:
    """A segment with a profile per (tenant, number of the service)."""
    builder = SegmentBuilder(1)
    for tenant, number in datasets:
        recording = recordings[number]
        labels = {"__name__": recording.name, "service_name": recording.service}
        builder.add(tenant, labels, parse_profile(recording.windows[0].read_bytes()))
    meta: BlockMeta = builder.build("01JKT3DJRETWN25NKEFZNEP1V0")[1]
    return LiveBlock(key="k", level=0, size=meta.size, metadata=encode_metadata(meta), visible=all_of(meta))


def all_of(meta: BlockMeta) -> dict[int, tuple[DeleteMask, ...]]:
    """What an index shows that hides nothing."""
    return dict.fromkeys(range(len(meta.datasets)), ())


def test_the_service_in_most_objects_is_asked_about(recordings: list[Recording], tmp_path: Path) -> None:
    blocks = [block(recordings, ("a", 0), ("b", 1)), block(recordings, ("b", 1)), block(recordings, ("b", 2))]
    assert choose_dataset(blocks) == ("b", recordings[1].service)


def test_objects_without_profiles_are_nothing_to_ask_about() -> None:
    with pytest.raises(NothingToCompact):
        choose_dataset([])


def test_profile_types_are_read_from_the_objects_of_the_chosen_service(
    recordings: list[Recording], tmp_path: Path
) -> None:
    store = open_store(f"file://{tmp_path}/objects")
    write_segments(plan_segments(recordings, segment_count=5, end_ms=1_790_000_000_000), store, lambda done: None)
    blocks = []
    for info in store.list():
        meta = read_footer(lambda offset, length, key=info.key: store.get_range(key, offset, length), info.size)
        data = encode_metadata(meta)
        blocks.append(LiveBlock(key=info.key, level=0, size=info.size, metadata=data, visible=all_of(meta)))
    question = choose_question(blocks, store)
    assert question.profile_type == "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
    answer = ask(question, blocks, store)
    assert answer.objects_opened == 3  # of five segments three are of the chosen service's shard
    # Each window has stacks of 1, 2 and 3 frames that take 10, 20 and 30 ms.
    assert answer.total_value == 3 * 60_000_000
    assert sum(row.self_value for row in answer.functions) == answer.total_value
    mask = DeleteMask(index=1, tenant=question.tenant, selector='{service_name=~".+"}')
    masked = [replace(one, visible=dict.fromkeys(one.visible, (mask,))) for one in blocks]
    assert ask(question, masked, store).total_value == 0, "hidden by a delete request, not rewritten yet"
    with pytest.raises(NothingToCompact):
        choose_question([replace(one, visible={}) for one in blocks], store)


def test_time_on_the_processor_is_asked_for_before_memory() -> None:
    memory, cpu, goroutines = "memory:inuse_space:bytes::", "process_cpu:cpu:nanoseconds:cpu:nanoseconds", "g:g:count::"
    assert choose_profile_type([memory, goroutines, cpu]) == cpu
    assert choose_profile_type([goroutines, memory]) == memory
    assert choose_profile_type([goroutines]) == goroutines


def test_the_unit_is_read_from_the_profile_type() -> None:
    assert Question(tenant="a", service="s", profile_type="memory:inuse_space:bytes::").unit == "bytes"
    assert Question(tenant="a", service="s", profile_type="odd").unit == ""
