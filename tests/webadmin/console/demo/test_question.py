"""The question is about the service that is in most objects, and the profile type people ask for first."""

from __future__ import annotations

from pathlib import Path

from engine.profiles.metadata import encode_metadata
from engine.profiles.model import BlockMeta
from engine.profiles.pprof import parse_profile
from engine.profiles.segment import SegmentBuilder
from webadmin.console.demo.figures import LiveBlock
from webadmin.console.demo.plan import Recording
from webadmin.console.demo.question import Question, choose_dataset, choose_profile_type


def block(recordings: list[Recording], *datasets: tuple[str, int]) -> LiveBlock:
    """A segment with a profile per (tenant, number of the service)."""
    builder = SegmentBuilder(1)
    for tenant, number in datasets:
        recording = recordings[number]
        labels = {"__name__": recording.name, "service_name": recording.service}
        builder.add(tenant, labels, parse_profile(recording.windows[0].read_bytes()))
    meta: BlockMeta = builder.build("01JKT3DJRETWN25NKEFZNEP1V0")[1]
    return LiveBlock(key="k", level=0, size=meta.size, metadata=encode_metadata(meta))


def test_the_service_in_most_objects_is_asked_about(recordings: list[Recording], tmp_path: Path) -> None:
    blocks = [block(recordings, ("a", 0), ("b", 1)), block(recordings, ("b", 1)), block(recordings, ("b", 2))]
    assert choose_dataset(blocks) == ("b", recordings[1].service)


def test_time_on_the_processor_is_asked_for_before_memory() -> None:
    memory, cpu, goroutines = "memory:inuse_space:bytes::", "process_cpu:cpu:nanoseconds:cpu:nanoseconds", "g:g:count::"
    assert choose_profile_type([memory, goroutines, cpu]) == cpu
    assert choose_profile_type([goroutines, memory]) == memory
    assert choose_profile_type([goroutines]) == goroutines


def test_the_unit_is_read_from_the_profile_type() -> None:
    assert Question(tenant="a", service="s", profile_type="memory:inuse_space:bytes::").unit == "bytes"
    assert Question(tenant="a", service="s", profile_type="odd").unit == ""
