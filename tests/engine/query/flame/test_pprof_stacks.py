"""pprof files as trees: what was put in comes out, and what a hostile file claims is refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.core.errors import BadReference, LimitExceeded
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_model import Profile
from engine.query.flame import pprof_stacks
from engine.query.flame.pprof_stacks import default_sample_type, profile_tree, sample_types
from tests.engine.query.flame.stacks import folded, stacks_of

STACKS = {"main;work;parse": (1, 30), "main;work": (2, 5), "main;work;work": (0, 7), "gc": (1, 5)}


def made(stacks: dict[str, tuple[int, int]]) -> Profile:
    builder = ProfileBuilder([("calls", "count"), ("cpu", "nanoseconds")], period_type=("cpu", "nanoseconds"), period=1)
    for stack, values in stacks.items():
        builder.add([Frame(name, f"{name}.py", 1, 2) for name in reversed(stack.split(";"))], list(values))
    return builder.profile(time_ns=10**18, duration_ns=10**9)


def test_each_sample_type_is_a_tree() -> None:
    profile = made(STACKS)
    assert sample_types(profile) == [("calls", "count"), ("cpu", "nanoseconds")]
    assert default_sample_type(profile) == 1
    for position in (0, 1):
        lines = (f"{stack} {values[position]}" for stack, values in STACKS.items() if values[position])
        assert stacks_of(profile_tree(profile, position)) == folded(", ".join(lines))


def test_a_place_without_lines_is_called_by_its_address() -> None:
    profile = made({"main": (1, 1)})
    count = len(profile.locations)
    bare = replace(
        profile.locations,
        line_starts=np.zeros(count + 1, np.int64),
        line_function_ids=np.zeros(0, np.uint64),
        line_numbers=np.zeros(0, np.int64),
        addresses=np.full(count, 255, np.uint64),
    )
    assert stacks_of(profile_tree(replace(profile, locations=bare), 1)) == {(b"unknown!0xff",): 1}


def without_samples(profile: Profile, field: str, value: int) -> Profile:
    column = getattr(profile.samples, field)
    return replace(profile, samples=replace(profile.samples, **{field: np.full_like(column, value)}))


def test_what_is_not_there_is_named() -> None:
    profile = made(STACKS)
    with pytest.raises(BadReference, match="location 999"):
        profile_tree(without_samples(profile, "location_ids", 999), 1)
    with pytest.raises(BadReference, match="a value for each sample type"):
        profile_tree(replace(profile, sample_types=profile.sample_types[:1]), 0)
    with pytest.raises(BadReference, match="string 500"):
        sample_types(replace(profile, sample_types=[(500, 0)]))
    with pytest.raises(BadReference, match="no sample type 7"):
        profile_tree(profile, 7)


def test_a_missing_function_is_unknown() -> None:
    profile = made({"main;work": (1, 1)})
    nobody = replace(profile, functions=replace(profile.functions, ids=np.zeros_like(profile.functions.ids)))
    assert stacks_of(profile_tree(nobody, 0)) == {(b"unknown!0x0", b"unknown!0x0"): 1}


@pytest.mark.parametrize("limit", ["FRAMES_MAX", "DEPTH_MAX"])
def test_more_than_anybody_looks_at_is_refused(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pprof_stacks, limit, 2)
    with pytest.raises(LimitExceeded):
        profile_tree(made(STACKS), 1)


def test_a_profile_without_samples_is_an_empty_tree() -> None:
    assert profile_tree(made({}), 0).total == 0
