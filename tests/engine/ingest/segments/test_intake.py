"""The two implementations behind ``intake``: equal pushes give equal segments, and hostile ones are refused alike."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import BadObject
from engine.formats.pprof import pprof
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_encode import encode_profile
from engine.formats.pprof.pprof_model import Profile
from engine.formats.profile_block.model import BlockMeta, Label
from engine.ingest.segments import _intake_py, intake
from engine.ingest.segments.normalise import LINES_MAX, SAMPLE_TYPES_MAX, STACK_FRAMES_MAX, STRING_BYTES_MAX
from engine.ingest.segments.segment import AddedProfile, SegmentBuilder

SEGMENT_ID = "01JKT3DJRETWN25NKEFZNEP1V0"
TIME_NS = 1_739_264_694_822_565_000
RECEIVED_NS = 7
SEED = 20240711
FRAMES = [Frame(f"function_{i}", f"file_{i % 5}.py", i, i + 1) for i in range(30)]
CPU, COUNT = ("cpu", "nanoseconds"), ("samples", "count")
SPANS = ("0100000000000000", "00000000000000ff", "00000000000000FF", "01 0000000000000", "zz00000000000000", "")
TRACES = ("0af7651916cd43dd8448eb211c80319c", "00" * 16, "0af7")

try:
    COMPILED = (
        importlib.import_module("engine.ingest.segments._intake").Intake,
        importlib.import_module("engine.ingest.segments._dataset_rows").DatasetBuilder,
    )
except ModuleNotFoundError:
    COMPILED = None
TWIN = (_intake_py.Intake, _intake_py.DatasetBuilder)
Implementation = tuple[type, type]


class Push(NamedTuple):
    """What a builder is given; the profile parsed or as a message."""

    profile: Profile | bytes
    labels: Sequence[Label] = (("__name__", "process_cpu"), ("service_name", "shop"))
    tenant: str = "a"
    annotations: Sequence[Label] = ()


class Outcome(NamedTuple):
    """What became of each push, and the segment of those that were stored."""

    added: list[AddedProfile | tuple[type, str]]
    built: tuple[bytes, BlockMeta] | None


def outcome(implementation: Implementation, pushes: Iterable[Push]) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "Intake", implementation[0])
        patch.setattr(intake, "DatasetBuilder", implementation[1])
        builder = SegmentBuilder(1)
    added: list[AddedProfile | tuple[type, str]] = []
    for push in pushes:
        try:
            one = builder.add(
                push.tenant, push.labels, push.profile, annotations=push.annotations, received_at_ns=RECEIVED_NS
            )
            added.append(one)
        except BadObject as error:
            added.append((type(error), str(error)))
    return Outcome(added, builder.build(SEGMENT_ID) if builder.row_count else None)


def both(*pushes: Push) -> Outcome:
    """The outcome of the twin, asserted equal to that of the kernels where they are built."""
    expected = outcome(TWIN, pushes)
    if COMPILED is not None:
        assert outcome(COMPILED, pushes) == expected
    return expected


def refusal(profile: Profile | bytes) -> tuple[type, str]:
    (only,) = both(Push(profile)).added
    assert isinstance(only, tuple)
    return only


def made(draw: random.Random, samples: int = 8, *, with_labels: bool = True) -> Profile:
    """A profile with all that splits, joins or drops samples: shared stacks, labels, spans, traces, bad values."""
    builder = ProfileBuilder([COUNT, CPU], period_type=CPU, period=7)
    for _ in range(samples):
        labels: list[Label] = []
        if with_labels:
            labels += [("thread", f"worker-{draw.randrange(3)}")] * draw.randrange(2)
            labels += [(draw.choice(("span_id", "profile_id")), draw.choice(SPANS))] * draw.randrange(2)
            labels += [("trace_id", draw.choice(TRACES))] * draw.randrange(2)
        values = [draw.choice((0, 1, 5)), draw.randrange(-1, 5)]
        builder.add(draw.choices(FRAMES[: draw.randrange(1, 30)], k=draw.randrange(8)), values, labels)
    profile = builder.profile(time_ns=draw.choice((0, TIME_NS + draw.randrange(1000))), duration_ns=draw.choice((0, 5)))
    profile.comments, profile.drop_frames = [1] * draw.randrange(3), draw.randrange(2)
    return profile


def message(draw: random.Random) -> bytes:
    """A message, often with a few bytes that are not what they were."""
    data = bytearray(encode_profile(made(draw, draw.randrange(1, 15)), compress=False))
    for _ in range(draw.randrange(4)):
        data[draw.randrange(len(data))] = draw.choice((0, 1, 2, 5, 0x7F, 0x80, 0xFF, draw.randrange(256)))
    return bytes(data)


def random_push(draw: random.Random) -> Push:
    labels = [("__name__", "process_cpu"), ("service_name", draw.choice("xyz")), ("thread", "outer")]
    return Push(
        message(draw),
        draw.choice((labels, labels[:2], [("a", "b")])),
        draw.choice("ab"),
        draw.choice(((), (), (("cause", "test"),))),
    )


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@settings(max_examples=120, deadline=None)
def test_equal_pushes_give_equal_segments(seed: int) -> None:
    draw = random.Random(seed)
    pushes = [random_push(draw) for _ in range(draw.randrange(1, 5))]
    both(*pushes, *pushes[: draw.randrange(2)])


def test_the_random_pushes_are_stored_as_often_as_they_are_refused() -> None:
    draw = random.Random(SEED)
    added = [one for _ in range(30) for one in both(random_push(draw), random_push(draw)).added]
    refused = sum(isinstance(one, tuple) for one in added)
    assert len(added) // 10 < refused < len(added) * 9 // 10


@pytest.mark.slow
@given(st.data())
@settings(max_examples=120, deadline=None)
def test_any_reference_and_number_is_stored_or_refused_alike(data: st.DataObject) -> None:
    profile = made(random.Random(SEED), 6)
    samples, mappings, locations, functions = profile.samples, profile.mappings, profile.locations, profile.functions
    ragged = ("location_starts", "value_starts", "label_starts", "line_starts")
    tables = (samples, mappings, locations, functions)
    columns = [getattr(table, name) for table in tables for name in table.__slots__ if name not in ragged]
    changeable = [column for column in columns if len(column)]
    for _ in range(data.draw(st.integers(1, 5))):
        column = data.draw(st.sampled_from(range(len(changeable))))
        at = data.draw(st.integers(0, len(changeable[column]) - 1))
        limits = np.iinfo(changeable[column].dtype)
        changeable[column][at] = data.draw(st.integers(0, 9) | st.integers(int(limits.min), int(limits.max)))
    both(Push(profile))


@pytest.mark.slow
def test_a_parsed_profile_is_stored_as_its_message_is() -> None:
    draw = random.Random(SEED)
    for _ in range(20):
        profile = made(draw)
        assert (
            both(Push(profile))
            == both(Push(encode_profile(profile)))
            == both(Push(encode_profile(profile, compress=False)))
        )


def test_an_intake_remembers_nothing_of_earlier_profiles() -> None:
    draw = random.Random(SEED)
    large, small = made(draw, 400), made(draw, 2, with_labels=False)
    assert both(Push(small, tenant="b")).built != both(Push(large), Push(small, tenant="b")).built
    after = both(Push(b"\x12\x02\x0a"), Push(large), Push(b""), Push(small, tenant="b")).added
    assert after[3] == both(Push(small, tenant="b")).added[0]


def test_ids_of_any_size_name_what_has_them() -> None:
    profile = made(random.Random(SEED), 20)
    expected = both(Push(profile)).built
    far = np.uint64(2**63 + 12345)
    profile.functions.ids += far
    profile.locations.line_function_ids += far
    profile.locations.ids += far
    profile.samples.location_ids += far
    assert both(Push(profile)).built == expected
    profile.locations.ids[1] = profile.locations.ids[0]
    both(Push(profile))


def test_long_lists_of_labels_are_ordered_alike() -> None:
    builder = ProfileBuilder([CPU], period_type=CPU, period=1)
    draw = random.Random(SEED)
    for _ in range(6):
        names = draw.choices([f"name-{i}" for i in range(30)], k=40)
        builder.add(FRAMES[:3], [1], [(name, draw.choice("ab")) for name in names])
    assert both(Push(builder.profile(time_ns=TIME_NS, duration_ns=1))).built is not None


def test_samples_have_the_order_of_xxh64_at_every_length_of_a_stack() -> None:
    builder = ProfileBuilder([CPU], period_type=CPU, period=1)
    draw = random.Random(SEED)
    for depth in range(40):
        builder.add(draw.choices(FRAMES, k=depth), [1])
    profile = builder.profile(time_ns=TIME_NS, duration_ns=1)
    twin = _intake_py.Intake()
    twin.take(profile, RECEIVED_NS)
    starts, ids = twin.profile.samples.location_starts, twin.profile.samples.location_ids
    hashes = [xxhash.xxh64_intdigest(ids[starts[i] : starts[i + 1]].tobytes()) for i in range(len(starts) - 1)]
    assert hashes == sorted(hashes)
    both(Push(profile))


@pytest.mark.parametrize(
    "data", [b"", b"\x32\x00", b"\x12\x02\x0a", b"\x1f\x8b\x00", b"<html>", b"\x0a\x00" * (SAMPLE_TYPES_MAX + 1)]
)
def test_what_is_no_profile_is_refused_alike(data: bytes) -> None:
    assert "pprof" in refusal(data)[1]


@pytest.mark.parametrize("field", ["time_ns", "duration_ns"])
def test_negative_times_are_refused_alike(field: str) -> None:
    profile = made(random.Random(SEED))
    setattr(profile, field, -1)
    assert "negative" in refusal(profile)[1]


def test_values_and_stacks_beyond_the_limits_are_refused_alike() -> None:
    builder = ProfileBuilder([CPU], period_type=CPU, period=1)
    builder.add(FRAMES[:1], [2**62])
    builder.add(FRAMES[:2], [2**62 - 1])
    assert both(Push(builder.profile(time_ns=1, duration_ns=1))).built is not None
    builder.add(FRAMES[:3], [1])
    assert "63 bits" in refusal(builder.profile(time_ns=1, duration_ns=1))[1]
    deep = ProfileBuilder([CPU], period_type=CPU, period=1)
    deep.add(FRAMES[:1] * (STACK_FRAMES_MAX + 1), [1])
    assert "depth" in refusal(deep.profile(time_ns=1, duration_ns=1))[1]


def test_what_the_format_cannot_hold_is_cut_alike() -> None:
    profile = made(random.Random(SEED), 1)
    profile.samples.values[:] = 1
    profile.strings[int(profile.functions.names[0])] = b"n" * (STRING_BYTES_MAX + 5)
    count = LINES_MAX + 9
    extra = count - 1
    profile.locations.line_starts[1:] += extra
    for name, value in (("line_function_ids", np.uint64(1)), ("line_numbers", np.int64(2**40))):
        column = getattr(profile.locations, name)
        setattr(profile.locations, name, np.concatenate((np.full(extra, value), column)))
    both(Push(profile))


@pytest.mark.skipif(COMPILED is None, reason="the kernels are not built")
@pytest.mark.parametrize("column", ["location_starts", "value_starts", "label_keys"])
def test_columns_that_do_not_fit_each_other_are_an_error_of_the_program(column: str) -> None:
    assert COMPILED is not None
    profile = made(random.Random(SEED))
    setattr(profile.samples, column, getattr(profile.samples, column)[:-1])
    with pytest.raises(ValueError, match="column"):
        COMPILED[0]().take(profile, RECEIVED_NS)
    profile = made(random.Random(SEED))
    profile.locations.line_starts[1] = 99
    with pytest.raises(ValueError, match="column"):
        COMPILED[0]().take(profile, RECEIVED_NS)


@pytest.mark.foreign_data
def test_real_profiles_give_equal_segments(foreign_data: Path) -> None:
    pushes = [
        Push(pprof.uncompressed(path.read_bytes()), tenant="ab"[number % 2])
        for number, path in enumerate(sorted((foreign_data / "profiles/pprof").iterdir()))
    ]
    assert all(isinstance(one, AddedProfile) for one in both(*pushes).added)
