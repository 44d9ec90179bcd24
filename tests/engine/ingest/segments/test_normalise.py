"""Normalisation: what stays of a pushed profile, in which order, and what is refused."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import BadObject, BadProfile, LimitExceeded
from engine.formats.pprof import pprof
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_encode import encode_profile
from engine.formats.pprof.pprof_model import Profile
from engine.ingest.segments.normalise import (
    LINES_MAX,
    SAMPLE_TYPES_MAX,
    STACK_FRAMES_MAX,
    STRING_BYTES_MAX,
    normalise,
    positions_of,
)

LEAF, MIDDLE, ROOT = (
    Frame(name, "app.py", line, line + 1) for name, line in [("leaf", 10), ("middle", 20), ("root", 1)]
)
CPU = ("cpu", "nanoseconds")


def profile_of(*samples: tuple[list[Frame], int], time_ns: int = 1_700_000_000_000_000_000) -> Profile:
    builder = ProfileBuilder([CPU], period_type=CPU, period=1)
    for stack, value in samples:
        builder.add(stack, [value])
    return builder.profile(time_ns=time_ns, duration_ns=1)


def normal(profile: Profile, received_at_ns: int = 7) -> Profile:
    result = normalise(profile, received_at_ns=received_at_ns)
    result.check()
    assert_valid(result)
    return result


def assert_valid(profile: Profile) -> None:
    """Assert what the docstring of ``normalise`` promises of its result."""
    samples, locations = profile.samples, profile.locations
    assert profile.strings[0] == b""
    for table in (profile.mappings, locations, profile.functions):
        assert table.ids.tolist() == list(range(1, len(table) + 1))
    assert set(samples.location_ids.tolist()) == set(range(1, len(locations) + 1))
    assert set(locations.line_function_ids.tolist()) == set(range(1, len(profile.functions) + 1))
    assert set(locations.mapping_ids.tolist()) <= set(range(1, len(profile.mappings) + 1))
    assert np.diff(samples.value_starts).tolist() == [len(profile.sample_types)] * len(samples)
    assert (samples.values >= 0).all()
    assert 0 not in samples.label_strings.tolist()


def named_stacks(profile: Profile) -> dict[tuple[bytes, ...], list[int]]:
    """The values of each stack of function names, leaf first."""
    found: dict[tuple[bytes, ...], list[int]] = {}
    samples, locations = profile.samples, profile.locations
    for i in range(len(samples)):
        names: list[bytes] = []
        for location in samples.location_ids[samples.location_starts[i] : samples.location_starts[i + 1]].tolist():
            lines = slice(locations.line_starts[location - 1], locations.line_starts[location])
            for function in locations.line_function_ids[lines].tolist():
                names.append(profile.strings[profile.functions.names[function - 1]])
        values = samples.values[samples.value_starts[i] : samples.value_starts[i + 1]].tolist()
        found[tuple(names)] = [a + b for a, b in zip(found.get(tuple(names), [0] * len(values)), values, strict=True)]
    return found


def test_samples_without_a_positive_value_are_dropped_with_what_only_they_reach() -> None:
    result = normal(profile_of(([LEAF, ROOT], 5), ([MIDDLE, ROOT], 0), ([MIDDLE, LEAF, ROOT], -1)))
    assert named_stacks(result) == {(b"leaf", b"root"): [5]}
    assert len(result.functions) == 2


def test_a_sample_is_kept_when_one_of_its_values_counts() -> None:
    builder = ProfileBuilder([("objects", "count"), ("space", "bytes")], period_type=CPU, period=1)
    builder.add([LEAF], [0, 8])
    builder.add([ROOT], [3, -8])
    assert named_stacks(normal(builder.profile(time_ns=1, duration_ns=1))) == {(b"leaf",): [0, 8]}


def test_equal_samples_are_joined_once_their_numeric_labels_are_gone() -> None:
    profile = profile_of(([LEAF, ROOT], 5), ([MIDDLE, ROOT], 1))
    message = encode_profile(profile, compress=False)
    numeric = b"\x12\x0d\x0a\x02\x01\x02\x12\x01\x04\x1a\x04\x08\x01\x18\x63"
    result = normal(pprof.parse_profile(message + numeric))
    assert named_stacks(result) == {(b"leaf", b"root"): [9], (b"middle", b"root"): [1]}
    assert len(result.samples) == 2


def test_samples_are_in_the_order_of_the_hash_of_their_stacks() -> None:
    draw = random.Random(5)
    frames = [Frame(f"f{i}", "x.py", i, i) for i in range(20)]
    result = normal(profile_of(*((draw.choices(frames, k=5), 1) for _ in range(50))))
    starts = result.samples.location_starts
    stacks = [result.samples.location_ids[starts[i] : starts[i + 1]] for i in range(len(result.samples))]
    hashes = [xxhash.xxh64_intdigest(stack.astype("<u8").tobytes()) for stack in stacks]
    assert hashes == sorted(hashes)


def test_a_profile_without_a_time_gets_the_time_it_was_received() -> None:
    assert normal(profile_of(([LEAF], 1), time_ns=0), received_at_ns=42).time_ns == 42
    assert normal(profile_of(([LEAF], 1), time_ns=9), received_at_ns=42).time_ns == 9


def test_the_empty_string_moves_to_place_0_and_references_follow() -> None:
    profile = profile_of(([LEAF, ROOT], 5))
    expected = named_stacks(normal(profile))
    swapped = profile_of(([LEAF, ROOT], 5))
    order = list(range(len(swapped.strings)))
    order[0], order[3] = order[3], order[0]
    swapped.strings = [swapped.strings[i] for i in order]
    for column in (swapped.functions.names, swapped.functions.system_names, swapped.functions.filenames):
        column[:] = [order[ref] for ref in column]
    assert named_stacks(normal(swapped)) == expected


def test_a_table_without_an_empty_string_gets_one() -> None:
    profile = profile_of(([LEAF], 1))
    profile.strings[0] = b"was here first"
    result = normal(profile)
    assert result.strings[0] == b""
    assert b"was here first" in result.strings


@pytest.mark.parametrize("ref", [-1, 10_000, 2**62])
def test_string_references_that_point_nowhere_become_empty(ref: int) -> None:
    profile = profile_of(([LEAF], 1))
    profile.functions.names[0] = ref
    assert named_stacks(normal(profile)) == {(b"",): [1]}


def test_functions_without_ids_are_numbered_by_position() -> None:
    profile = profile_of(([LEAF, ROOT], 5))
    profile.functions.ids[:] = 0
    assert named_stacks(normal(profile)) == {(b"leaf", b"root"): [5]}


def test_locations_without_a_mapping_share_a_stub() -> None:
    profile = profile_of(([LEAF, ROOT], 5))
    profile.locations.mapping_ids[:] = 0
    result = normal(profile)
    assert result.locations.mapping_ids.tolist() == [2, 2]
    assert result.mappings.flags.tolist() == [14, 0]


def test_a_profile_without_mappings_at_all_is_kept() -> None:
    profile = profile_of(([LEAF, ROOT], 5))
    profile.mappings = type(profile.mappings)()
    profile.locations.mapping_ids[:] = 0
    assert named_stacks(normal(profile)) == {(b"leaf", b"root"): [5]}


@pytest.mark.parametrize("table", ["mapping", "function", "location", "values", "no place"])
def test_samples_that_reach_something_unknown_are_dropped(table: str) -> None:
    profile = profile_of(([LEAF, ROOT], 5), ([MIDDLE], 2))
    if table == "mapping":
        profile.locations.mapping_ids[0] = 99
    elif table == "function":
        profile.locations.line_function_ids[0] = 99
    elif table == "location":
        profile.samples.location_ids[0] = 99
    elif table == "values":
        profile.samples.value_starts = np.array([0, 0, 2])
        assert len(normal(profile).samples) == 0
        return
    else:
        profile.locations.line_starts = np.array([0, 0, 1, 2])
        profile.locations.line_function_ids = profile.locations.line_function_ids[1:]
        profile.locations.line_numbers = profile.locations.line_numbers[1:]
    assert named_stacks(normal(profile)) == {(b"middle",): [2]}


def test_addresses_are_cleared_only_where_the_mapping_has_functions() -> None:
    profile = profile_of(([LEAF], 5))
    profile.locations.addresses[:] = 0x1000
    profile.mappings.memory_starts[:] = 0x400
    cleared = normal(profile)
    assert cleared.locations.addresses.tolist() == [0]
    assert cleared.mappings.memory_starts.tolist() == [0]
    profile.mappings.flags[:] = 0
    kept = normal(profile)
    assert kept.locations.addresses.tolist() == [0x1000]
    assert kept.mappings.memory_starts.tolist() == [0x400]


def test_what_the_block_format_cannot_hold_is_cut() -> None:
    profile = profile_of(([LEAF], 5))
    profile.strings[int(profile.functions.names[0])] = b"n" * (STRING_BYTES_MAX + 5)
    profile.locations.line_starts = np.array([0, LINES_MAX + 9])
    profile.locations.line_function_ids = np.ones(LINES_MAX + 9, np.uint64)
    profile.locations.line_numbers = np.full(LINES_MAX + 9, 2**40)
    result = normal(profile)
    assert max(map(len, result.strings)) == STRING_BYTES_MAX
    assert result.locations.line_starts.tolist() == [0, LINES_MAX]
    assert set(result.locations.line_numbers.tolist()) == {0}


def test_values_beyond_63_bits_in_sum_are_refused() -> None:
    with pytest.raises(BadProfile, match="63 bits"):
        normalise(profile_of(([LEAF], 2**62), ([ROOT], 2**62)), received_at_ns=1)
    assert normal(profile_of(([LEAF], 2**62), ([ROOT], 2**62 - 1))).samples.values.sum() == 2**63 - 1


@pytest.mark.parametrize("field", ["time_ns", "duration_ns"])
def test_negative_times_are_refused(field: str) -> None:
    profile = profile_of(([LEAF], 1))
    setattr(profile, field, -1)
    with pytest.raises(BadProfile, match="negative"):
        normalise(profile, received_at_ns=1)


def test_absurdly_many_sample_types_are_refused() -> None:
    profile = profile_of(([LEAF], 1))
    profile.sample_types *= SAMPLE_TYPES_MAX + 1
    with pytest.raises(LimitExceeded):
        normalise(profile, received_at_ns=1)


def test_absurdly_deep_stacks_are_refused() -> None:
    assert len(normal(profile_of(([LEAF] * STACK_FRAMES_MAX, 1))).samples) == 1
    with pytest.raises(LimitExceeded, match="depth"):
        normalise(profile_of(([LEAF] * (STACK_FRAMES_MAX + 1), 1)), received_at_ns=1)


def test_ids_are_found_first_come_and_0_is_no_id() -> None:
    ids = np.array([7, 3, 7, 0, 2**64 - 1], np.uint64)
    wanted = np.array([7, 3, 0, 4, 2**64 - 1], np.uint64)
    assert positions_of(ids, wanted).tolist() == [0, 1, -1, -1, 4]
    assert positions_of(ids[:0], wanted[:2]).tolist() == [-1, -1]


def test_normalising_twice_changes_nothing_but_the_hash_order() -> None:
    once = normal(profile_of(([LEAF, ROOT], 5), ([MIDDLE, ROOT], 1), ([MIDDLE], 0)))
    again = normal(once)
    assert named_stacks(again) == named_stacks(once)
    assert len(again.samples) == len(once.samples)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_broken_profile_is_refused_or_made_valid(data: st.DataObject) -> None:
    """Random references everywhere: whatever comes out keeps the promises."""
    profile = profile_of(([LEAF, ROOT], 5), ([MIDDLE, ROOT], 3), ([LEAF, MIDDLE], 2))
    columns = [
        profile.samples.location_ids,
        profile.samples.values,
        profile.mappings.ids,
        profile.mappings.filenames,
        profile.locations.ids,
        profile.locations.mapping_ids,
        profile.locations.line_function_ids,
        profile.functions.ids,
        profile.functions.names,
    ]
    for _ in range(data.draw(st.integers(1, 4))):
        column = data.draw(st.sampled_from(range(len(columns))))
        at = data.draw(st.integers(0, len(columns[column]) - 1))
        low, high = (0, 2**64 - 1) if columns[column].dtype == np.uint64 else (-(2**63), 2**63 - 1)
        columns[column][at] = data.draw(st.integers(0, 5) | st.integers(low, high))
    with suppress(BadObject):
        normal(profile)
