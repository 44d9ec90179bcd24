"""The pprof parser, plain and compiled alike: what it returns, what it refuses, and that both do the same."""

from __future__ import annotations

import gzip
import importlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import BadObject, BadProfile, LimitExceeded, Truncated
from engine.formats.pprof import _pprof_py, pprof
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_encode import encode_profile
from engine.formats.pprof.pprof_model import Profile

Parse = Callable[[bytes, int], Profile]

ENTRIES_MAX = 100_000
SEED = 20240711
FRAMES = [Frame(f"pkg.function_{i}", f"src/file_{i % 7}.py", 10 * i + 1, 10 * i + 5) for i in range(40)]

try:
    COMPILED = importlib.import_module("engine.formats.pprof._pprof")
except ModuleNotFoundError:
    COMPILED = None


@pytest.fixture(params=[_pprof_py, COMPILED], ids=["twin", "compiled"])
def parse(request: pytest.FixtureRequest) -> Parse:
    if request.param is None:
        pytest.skip("the kernels are not built")
    return request.param.parse_message


def made_profile(samples: int = 60, seed: int = SEED) -> Profile:
    """A profile with shared frames, labels, two sample types and every header field set."""
    draw = random.Random(seed)
    builder = ProfileBuilder(
        [("samples", "count"), ("cpu", "nanoseconds")], period_type=("cpu", "nanoseconds"), period=7
    )
    for _ in range(samples):
        labels = [("thread", f"worker-{draw.randrange(4)}")] if draw.random() < 0.5 else []
        builder.add(draw.choices(FRAMES, k=draw.randrange(1, 12)), [1, draw.randrange(1, 10**9)], labels)
    profile = builder.profile(time_ns=1_720_700_000_000_000_001, duration_ns=250_000_000)
    profile.comments, profile.default_sample_type = [1, 2], 3
    profile.drop_frames, profile.keep_frames = 4, 5
    return profile


def outcome(parse: Parse, data: bytes, entries_max: int = ENTRIES_MAX) -> Profile | tuple[type, str, int]:
    try:
        return parse(data, entries_max)
    except BadObject as error:
        return type(error), error.section, error.offset


def both(data: bytes, entries_max: int = ENTRIES_MAX) -> Profile | tuple[type, str, int]:
    """The outcome of the twin, asserted equal to that of the compiled parser where it is built."""
    expected = outcome(_pprof_py.parse_message, data, entries_max)
    if COMPILED is not None:
        assert outcome(COMPILED.parse_message, data, entries_max) == expected
    if isinstance(expected, Profile):
        expected.check()
    return expected


def foreign_messages(foreign_data: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted((foreign_data / "profiles/pprof").iterdir()):
        yield path.name, pprof.uncompressed(path.read_bytes())


def test_a_profile_comes_back_as_it_was_encoded(parse: Parse) -> None:
    profile = made_profile()
    assert parse(encode_profile(profile, compress=False), ENTRIES_MAX) == profile


def test_a_hand_written_message_gives_the_columns_it_spells(parse: Parse) -> None:
    sample = b"\x08\x05\x08\x06" + b"\x12\x02\x80\x01" + b"\x10\x03" + b"\x1a\x04\x08\x01\x10\x02"
    message = b"\x0a\x04\x08\x01\x10\x02" + b"\x12" + bytes([len(sample)]) + sample + b"\x32\x00" + b"\x32\x02ab"
    profile = parse(message + b"\x48" + b"\xff" * 9 + b"\x01", 10)
    assert profile.sample_types == [(1, 2)]
    assert profile.samples.location_ids.tolist() == [5, 6]
    assert profile.samples.values.tolist() == [128, 3]
    assert profile.samples.label_keys.tolist() == [1]
    assert profile.samples.label_strings.tolist() == [2]
    assert profile.strings == [b"", b"ab"]
    assert profile.time_ns == -1


def test_unknown_fields_of_every_wire_type_are_skipped(parse: Parse) -> None:
    message = b"\x82\x01\x03abc" + b"\x81\x01" + bytes(8) + b"\x85\x01" + bytes(4) + b"\x80\x01\x07" + b"\x32\x00"
    assert parse(message, 10).strings == [b""]


@pytest.mark.parametrize(
    ("message", "error_class", "offset"),
    [
        (b"\x32", Truncated, 1),
        (b"\x32\x05abc", Truncated, 1),
        (b"\x32\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", Truncated, 1),
        (b"\x48\xff\xff", Truncated, 1),
        (b"\x48" + b"\xff" * 10 + b"\x01", BadProfile, 1),
        (b"\x48" + b"\xff" * 9 + b"\x02", BadProfile, 1),
        (b"\x48" + b"\x80" * 12, BadProfile, 1),
        (b"\x00\x01", BadProfile, 0),
        (b"\x32\x00\x0b\x0c", BadProfile, 2),
        (b"\x4a\x01\x00", BadProfile, 0),
        (b"\x30\x01", BadProfile, 0),
        (b"\x12\x03\x0a\x02\x80", Truncated, 3),
        (b"\x12\x02\x0a\x01\x05", Truncated, 3),
        (b"\x12\x05\x0d\x00\x00\x00\x00", BadProfile, 2),
        (b"\x22\x02\x22\x09", Truncated, 3),
        (b"\x81\x01\x00", Truncated, 2),
        (b"<html><body>no profile here</body></html>", BadProfile, 0),
    ],
)
def test_what_cannot_be_true_is_refused_where_it_stands(
    parse: Parse, message: bytes, error_class: type[BadObject], offset: int
) -> None:
    with pytest.raises(error_class) as caught:
        parse(message, ENTRIES_MAX)
    assert (caught.value.section, caught.value.offset) == ("pprof", offset)
    assert type(caught.value) is error_class


@pytest.mark.parametrize(
    "entry", [b"\x0a\x00", b"\x12\x00", b"\x1a\x00", b"\x22\x00", b"\x2a\x00", b"\x32\x00", b"\x68\x01"]
)
def test_a_table_of_absurdly_many_entries_is_refused(parse: Parse, entry: bytes) -> None:
    assert parse(entry * 20, 20) is not None
    with pytest.raises(LimitExceeded) as caught:
        parse(entry * 21, 20)
    assert caught.value.offset == 20 * len(entry)


@pytest.mark.parametrize("owner", [b"\x12", b"\x22"])
def test_nested_entries_count_against_the_limit_too(parse: Parse, owner: bytes) -> None:
    nested = b"\x1a\x00" if owner == b"\x12" else b"\x22\x00"
    with pytest.raises(LimitExceeded):
        parse(owner + b"\x2a" + nested * 21, 20)


@pytest.mark.parametrize("field", [b"\x0a", b"\x12"])
def test_absurdly_many_location_ids_or_values_are_refused(parse: Parse, field: bytes) -> None:
    assert len(parse(b"\x12\x52" + field + b"\x50" + b"\x01" * 80, 10).samples) == 1
    for message in (b"\x12\x53" + field + b"\x51" + b"\x01" * 81, b"\x12\x7d" + field + b"\x7b" + b"\x01" * 123):
        with pytest.raises(LimitExceeded) as caught:
            parse(message, 10)
        assert caught.value.offset == 2


@pytest.mark.slow
def test_every_truncation_is_refused_or_read_alike() -> None:
    message = encode_profile(made_profile(8), compress=False)
    outcomes = [both(message[:end]) for end in range(len(message))]
    assert sum(isinstance(one, tuple) for one in outcomes) > len(message) // 2


@pytest.mark.slow
def test_twin_and_compiled_agree_on_mutated_profiles() -> None:
    draw = random.Random(SEED)
    seed = encode_profile(made_profile(6), compress=False)
    refused = sum(isinstance(both(mutated(seed, draw)), tuple) for _ in range(1500))
    assert refused > 100


def mutated(seed: bytes, draw: random.Random) -> bytes:
    """Change some bytes, drop or repeat a stretch: what a fuzzer does, from a fixed seed."""
    data = bytearray(seed)
    for _ in range(draw.randrange(1, 5)):
        at = draw.randrange(len(data))
        kind = draw.randrange(4)
        if kind == 0:
            data[at] = draw.randrange(256)
        elif kind == 1:
            data[at : at + draw.randrange(1, 20)] = b""
        elif kind == 2:
            data[at:at] = data[at : at + draw.randrange(1, 20)]
        else:
            data[at:at] = b"\xff" * draw.randrange(1, 11)
    return bytes(data)


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_parsed_or_refused_alike(data: bytes) -> None:
    both(data)


# A message grammar: likely field numbers with any wire type, nested a level or two.
_varints = st.integers(0, 2**64 - 1).map(lambda value: _encoded(value))
_field = st.deferred(lambda: st.builds(_field_bytes, st.integers(1, 17), _varints, _messages))
_messages = st.one_of(st.binary(max_size=6), st.lists(_field, max_size=4).map(b"".join))


def _encoded(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _field_bytes(number: int, varint: bytes, content: bytes) -> bytes:
    if len(content) % 3 == 0 and len(varint) % 2:
        return _encoded(number << 3) + varint
    return _encoded(number << 3 | 2) + _encoded(len(content)) + content


@pytest.mark.slow
@given(st.lists(_field, max_size=12).map(b"".join))
@settings(max_examples=300, deadline=None)
def test_any_message_is_parsed_or_refused_alike(data: bytes) -> None:
    both(data, entries_max=8)


@given(seed=st.integers(0, 2**32), samples=st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_any_profile_survives_the_round_trip(seed: int, samples: int) -> None:
    profile = made_profile(samples, seed)
    assert both(encode_profile(profile, compress=False)) == profile
    assert pprof.parse_profile(encode_profile(profile)) == profile


def test_gzipped_and_bare_messages_are_both_taken() -> None:
    profile = made_profile()
    bare = encode_profile(profile, compress=False)
    assert pprof.parse_profile(bare) == pprof.parse_profile(gzip.compress(bare)) == profile
    assert pprof.uncompressed(gzip.compress(bare[:50]) + gzip.compress(bare[50:])) == bare


def test_a_gzip_bomb_is_refused_before_it_unfolds() -> None:
    bomb = gzip.compress(bytes(40 << 20), 9)
    with pytest.raises(LimitExceeded):
        pprof.parse_profile(bomb)
    with pytest.raises(LimitExceeded):
        pprof.parse_profile(gzip.compress(bytes(3000)), size_max=2999)
    with pytest.raises(LimitExceeded):
        pprof.parse_profile(gzip.compress(b"") * (pprof.MEMBERS_MAX + 1))


def test_profiles_of_one_request_share_free_size_and_gzip_members() -> None:
    budget = pprof.UnpackBudget()
    zeros = gzip.compress(bytes(600_000))
    assert pprof.uncompressed(zeros, budget=budget) == bytes(600_000)
    with pytest.raises(LimitExceeded):
        pprof.uncompressed(zeros, budget=budget)
    two = gzip.compress(b"a") * 2
    for _ in range(pprof.MEMBERS_MAX - 1):
        assert pprof.uncompressed(two, budget=budget) == b"aa"
    assert pprof.uncompressed(gzip.compress(b"a"), budget=budget) == b"a"
    with pytest.raises(LimitExceeded):
        pprof.uncompressed(two, budget=budget)


def test_a_bare_message_beyond_the_size_limit_is_refused() -> None:
    with pytest.raises(LimitExceeded):
        pprof.parse_profile(encode_profile(made_profile(), compress=False), size_max=100)


def test_damaged_gzip_is_refused_at_every_step_of_truncation() -> None:
    packed = encode_profile(made_profile())
    for end in range(2, len(packed), 13):
        with pytest.raises(BadObject):
            pprof.parse_profile(packed[:end])
    flipped = bytearray(packed)
    flipped[-6] ^= 1
    with pytest.raises(BadProfile, match="gzip"):
        pprof.parse_profile(bytes(flipped))


@pytest.mark.parametrize("data", [b"", b"\x32\x00", b"\x1f\x8b"])
def test_data_that_is_no_profile_is_a_bad_object(data: bytes) -> None:
    with pytest.raises(BadObject):
        pprof.parse_profile(data)


@pytest.mark.slow
@pytest.mark.foreign_data
def test_real_files_parse_alike_and_encode_back(foreign_data: Path) -> None:
    for name, message in foreign_messages(foreign_data):
        profile = both(message)
        assert isinstance(profile, Profile), name
        assert both(encode_profile(profile, compress=False)) == profile, name


@pytest.mark.slow
@pytest.mark.foreign_data
def test_real_files_cut_at_every_97th_byte_are_refused_or_read_alike(foreign_data: Path) -> None:
    for _, message in foreign_messages(foreign_data):
        for end in range(97, min(len(message), 97 * 60), 97):
            both(message[:end])


@pytest.mark.slow
@pytest.mark.foreign_data
def test_a_large_real_file_cut_anywhere_never_harms_the_compiled_parser(foreign_data: Path) -> None:
    for _, message in foreign_messages(foreign_data):
        for end in range(97, len(message), 97 * max(1, len(message) // 40_000)):
            outcome(pprof.parse_message, message[:end])


@pytest.mark.foreign_data
def test_mutated_real_files_are_refused_or_read_alike(foreign_data: Path) -> None:
    draw = random.Random(SEED)
    for _, message in foreign_messages(foreign_data):
        if len(message) < 15_000:
            for _ in range(40):
                both(mutated(message, draw))
