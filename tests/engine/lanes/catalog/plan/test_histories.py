"""Random histories of a branch: writers, readers, commits, merges, resets, compactions and crashes, step by step."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.engine.lanes.catalog.plan.world import KEYS, World

AT_ONCE = 4
HISTORIES = 150
HISTORIES_AGAINST = 1_000
STEPS = 60


class BranchMachine(RuleBasedStateMachine):
    """Hypothesis chooses which operation begins and which continues."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(key=st.sampled_from(KEYS), value=st.sampled_from("xyz"))
    def put(self, key: bytes, value: str) -> None:
        self.world.begin_put(key, value)

    @rule(key=st.sampled_from(KEYS))
    def delete(self, key: bytes) -> None:
        self.world.begin_delete(key)

    @rule(key=st.sampled_from(KEYS))
    def reset_key(self, key: bytes) -> None:
        self.world.begin_reset_key(key)

    @rule(prefix=st.sampled_from([b"", b"a", b"b"]))
    def reset_prefix(self, prefix: bytes) -> None:
        self.world.begin_reset_prefix(prefix)

    @rule(key=st.sampled_from(KEYS))
    def get(self, key: bytes) -> None:
        self.world.begin_get(key)

    @rule()
    def compact(self) -> None:
        self.world.begin_compact()

    @rule()
    def commit(self) -> None:
        self.world.begin_commit()

    @rule(values=st.dictionaries(st.sampled_from(KEYS), st.sampled_from("mn"), min_size=1, max_size=2))
    def merge(self, values: dict[bytes, str]) -> None:
        self.world.begin_merge(values)

    @rule()
    def reset_all(self) -> None:
        self.world.reset_all()

    @rule()
    def recreate(self) -> None:
        self.world.recreate()

    @rule()
    def sweep(self) -> None:
        self.world.sweep()

    @rule(number=st.integers(0, 20))
    def advance(self, number: int) -> None:
        self.world.advance(number)

    @rule(number=st.integers(0, 20))
    def finish(self, number: int) -> None:
        self.world.finish(number)

    @rule(number=st.integers(0, 20))
    def crash(self, number: int) -> None:
        self.world.crash(number)

    @invariant()
    def holds(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.finish_all()
        self.world.sweep()
        self.world.check()
        self.world.begin_compact()
        self.world.finish_all()
        self.world.check()
        assert not self.world.branch.sealed


TestBranch = BranchMachine.TestCase
TestBranch.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def history(seed: int, world: World) -> None:
    """Play a history of its seed; what breaks a promise is an AssertionError."""
    draw = random.Random(seed)
    begin = [
        (8, lambda: world.begin_put(draw.choice(KEYS), draw.choice("xyz"))),
        (8, lambda: world.begin_delete(draw.choice(KEYS))),
        (4, lambda: world.begin_get(draw.choice(KEYS))),
        (2, lambda: world.begin_reset_key(draw.choice(KEYS))),
        (1, lambda: world.begin_reset_prefix(draw.choice([b"", b"a", b"b"]))),
        (4, world.begin_compact),
        (4, world.begin_commit),
        (2, lambda: world.begin_merge({draw.choice(KEYS): draw.choice("mn")})),
        (1, world.reset_all),
        (1, world.recreate),
        (1, lambda: world.crash(draw.randrange(9))),
    ]
    weights = [weight for weight, _ in begin]
    for _ in range(STEPS):
        if len(world.running) < AT_ONCE and draw.random() < 0.4:
            draw.choices([action for _, action in begin], weights)[0]()
        else:
            world.advance(draw.randrange(AT_ONCE))
        if draw.random() < 0.3:
            world.sweep()
        world.check()
    world.finish_all()
    world.sweep()
    world.check()


def is_broken(**protocol: bool) -> bool:
    """Whether some history breaks a promise with parts of the protocol taken away."""
    for seed in range(HISTORIES_AGAINST):
        try:
            history(seed, World(**protocol))
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("first", range(0, HISTORIES, 50))
def test_histories_keep_every_promise(first: int) -> None:
    for seed in range(first, first + 50):
        history(seed, World())


@pytest.mark.parametrize("protocol", [{"checks_epoch": False}, {"checks_basis": False}], ids=str)
def test_without_a_part_of_the_protocol_promises_are_broken(protocol: dict[str, bool]) -> None:
    assert is_broken(**protocol)
