"""The screen for pushes in order: what it passes is what the plain checks return as it came, and nothing else."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import BadObject
from engine.formats.pprof import pprof
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_encode import encode_profile
from engine.formats.pprof.pprof_model import Profile
from engine.ingest import push
from engine.ingest.labels import check_labels
from engine.ingest.model import PushLimits, Refused
from engine.ingest.profile_checks import check_profile

NOW_NS = 1_739_264_694_822_565_000
LIMITS = PushLimits(samples_max=12, sample_labels_max=2, stack_frames_max=6, symbol_bytes_max=40)
LABELS = check_labels([("__name__", "process_cpu"), ("service_name", "shop")], LIMITS)
FRAMES = [Frame(f"function_{i}", f"file_{i % 3}.py", i, i + 1) for i in range(9)]
CPU = ("cpu", "nanoseconds")

try:
    COMPILED = importlib.import_module("engine.ingest.segments._push_screen").is_in_order
except ModuleNotFoundError:
    COMPILED = None
needs_screen = pytest.mark.skipif(COMPILED is None, reason="the kernels are not built")


def made(samples: int = 6, seed: int = 1, frames: int = 6) -> Profile:
    draw = random.Random(seed)
    builder = ProfileBuilder([CPU], period_type=CPU, period=7)
    for _ in range(samples):
        labels = [("thread", "a")] * draw.randrange(3)
        builder.add(draw.choices(FRAMES, k=draw.randrange(1, frames + 1)), [draw.randrange(5)], labels)
    return builder.profile(time_ns=NOW_NS, duration_ns=1)


def plainly(message: bytes, limits: PushLimits = LIMITS) -> bool:
    """Whether the plain checks return the profile as it is."""
    try:
        profile = pprof.parse_profile(message)
        return check_profile(profile, limits, now_ns=NOW_NS) == (profile, ())
    except (BadObject, Refused):
        return False


def screened(message: bytes, limits: PushLimits = LIMITS) -> bool:
    """What the compiled screen says, asserted to be what the plain checks say."""
    assert COMPILED is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(push, "is_in_order", COMPILED)
        found: bool = push._is_in_order(message, limits, NOW_NS)
    assert found == plainly(message, limits)
    return found


def bare(profile: Profile) -> bytes:
    return encode_profile(profile, compress=False)


@needs_screen
def test_a_profile_in_order_passes() -> None:
    assert screened(bare(made()))
    assert screened(bare(made(12)))


def _too_many_samples(profile: Profile) -> None:
    profile.samples = made(13).samples


def _late(profile: Profile) -> None:
    profile.time_ns = NOW_NS - LIMITS.older_than_now_max_ns


def _early(profile: Profile) -> None:
    profile.time_ns = NOW_NS + LIMITS.newer_than_now_max_ns


def _no_string_0(profile: Profile) -> None:
    profile.strings[0] = b"x"


def _no_strings(profile: Profile) -> None:
    profile.strings = []


def _long_string(profile: Profile) -> None:
    profile.strings[-1] = b"x" * 41


def _dash(profile: Profile) -> None:
    profile.strings[profile.sample_types[0][0]] = b"cpu-time"


def _no_types(profile: Profile) -> None:
    profile.sample_types = []


def _set(table: str, column: str, value: int) -> Callable[[Profile], None]:
    def change(profile: Profile) -> None:
        getattr(getattr(profile, table), column)[0] = value

    return change


def _set_field(field: str, value: object) -> Callable[[Profile], None]:
    return lambda profile: setattr(profile, field, value)


FLAWS = [
    *(_too_many_samples, _late, _early, _no_string_0, _no_strings, _long_string, _dash, _no_types),
    *(_set("functions", name, value) for name in ("names", "system_names", "filenames") for value in (-1, 99)),
    *(_set("mappings", name, value) for name in ("filenames", "build_ids") for value in (-1, 99)),
    *(_set("samples", name, value) for name in ("label_keys", "label_strings", "label_units") for value in (-1, 99)),
    _set("locations", "ids", 0),
    _set("functions", "ids", 0),
    *(_set_field(name, -1) for name in ("time_ns", "duration_ns", "drop_frames", "keep_frames")),
    *(_set_field(name, 99) for name in ("drop_frames", "keep_frames", "default_sample_type")),
    *(_set_field("comments", [value]) for value in (-1, 99)),
    *(_set_field("period_type", value) for value in ((99, 0), (0, -1))),
    *(_set_field("sample_types", [value]) for value in ((99, 0), (0, -1))),
]


@needs_screen
@pytest.mark.parametrize("change", FLAWS)
def test_a_profile_with_any_flaw_does_not_pass(change: Callable[[Profile], None]) -> None:
    profile = made(seed=3)
    assert screened(bare(profile))
    change(profile)
    assert not screened(bare(profile))


@needs_screen
def test_deep_stacks_many_labels_and_missing_values_do_not_pass() -> None:
    deep, labelled = (ProfileBuilder([CPU], period_type=CPU, period=1) for _ in range(2))
    deep.add(FRAMES[:7], [1])
    labelled.add(FRAMES[:2], [1], [("a", "b")] * 3)
    assert not screened(bare(deep.profile(time_ns=0, duration_ns=0)))
    assert not screened(bare(labelled.profile(time_ns=0, duration_ns=0)))
    assert not screened(bare(made()) + b"\x12\x02\x08\x01")
    assert screened(bare(made()) + b"\x12\x04\x08\x01\x10\x01")


@pytest.mark.slow
@needs_screen
def test_text_passes_if_python_can_decode_it() -> None:
    texts = [bytes([*lead, *tail]) for lead in ([], [0x41] * 7, [0x41] * 8) for tail in _sequences()]
    passed = 0
    for text in texts:
        profile = made(1)
        profile.strings.append(text)
        passed += screened(bare(profile))
    assert 100 < passed < len(texts) - 100


def _sequences() -> list[list[int]]:
    """Bytes at every border of what UTF-8 allows."""
    seconds = (0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
    leads = (0x7F, 0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF)
    pairs = [[lead, second] for lead in leads for second in seconds]
    return [
        *([lead] for lead in leads),
        *pairs,
        *([*pair, 0xBF] for pair in pairs),
        *([*pair, 0x80, 0x80] for pair in pairs),
    ]


@needs_screen
@given(seed=st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_any_damaged_message_is_judged_as_the_plain_checks_judge_it(seed: int) -> None:
    draw = random.Random(seed)
    data = bytearray(bare(made(draw.randrange(1, 14), seed)))
    for _ in range(draw.randrange(3)):
        data[draw.randrange(len(data))] = draw.choice((0, 1, 2, 0x7F, 0x80, 0xFF, draw.randrange(256)))
    screened(bytes(data))


def test_limits_without_bounds_are_no_error() -> None:
    limits = PushLimits(older_than_now_max_ns=2**70, newer_than_now_max_ns=2**70)
    taken = push.checked_pprof(bare(made()), LABELS, limits, now_ns=NOW_NS)
    assert taken.pprof == bare(made())
    assert taken.profile == made()


@needs_screen
@pytest.mark.foreign_data
def test_real_profiles_are_judged_as_the_plain_checks_judge_them(foreign_data: Path) -> None:
    for path in sorted((foreign_data / "profiles/pprof").iterdir()):
        message = pprof.uncompressed(path.read_bytes())
        screened(message, PushLimits(older_than_now_max_ns=2**62))
