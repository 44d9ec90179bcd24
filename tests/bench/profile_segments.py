"""Segments for benchmarks: generated programs of realistic shape, equal for equal seeds.

A service has a pool of functions and stacks that all its segments use; ``SHARED`` of the stacks of a segment are from
it, the rest occur once. A dataset of the default shape takes about 35 KB, most of it symbols, as real ones do.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from engine.core import ulids
from engine.lanes.profiles.jobs import SourceObject
from engine.storage import ObjectStore
from tests.engine.formats.profile_block.factories import (
    HEAP,
    TIME_MS,
    TIME_NS,
    Dataset,
    ProfileRow,
    Sample,
    series_labels,
    write_block,
)

SEED = 20261121
SHARED = 0.8
ROWS = 4
SAMPLES = 60
DEPTH = 16
POOL_STACKS = 110
TYPES = (HEAP, "memory:inuse_objects:count:space:bytes", "memory:alloc_space:bytes:space:bytes", "goroutine:n:n:n:n")
WORDS = ("server", "handler", "encode", "compress", "buffer", "iterator", "session", "cluster", "request", "pool")


@dataclass(frozen=True)
class Program:
    """A service's program: its functions, and the stacks that all its segments share, leaf first."""

    functions: tuple[str, ...]
    stacks: tuple[tuple[str, ...], ...]


def _function(random: random.Random, number: int) -> str:
    words = random.choices(WORDS, k=3)
    return f"github.com/example/project/internal/{words[0]}/{words[1]}.(*{words[2].title()}Pool).Do{number:07d}"


def _stack(random: random.Random, functions: tuple[str, ...]) -> tuple[str, ...]:
    """Return a random walk from one of a few roots; near the root there are few branches, as in real programs."""
    path = []
    for level in range(DEPTH):
        width = min(len(functions) // DEPTH, 2 + 3 * level)
        path.append(functions[level * (len(functions) // DEPTH) + random.randrange(width)])
    return tuple(reversed(path))


def program(random: random.Random, service: int) -> Program:
    """Return a service's program."""
    functions = tuple(_function(random, 10_000 * service + number) for number in range(640))
    return Program(functions, tuple(_stack(random, functions) for _ in range(POOL_STACKS)))


def dataset_rows(random: random.Random, program: Program, segment: int, service: str) -> tuple[ProfileRow, ...]:
    """Return a segment's rows of a service: every type has samples of the same stacks."""
    fresh = SAMPLES - round(SHARED * SAMPLES)
    own = tuple(_function(random, 1_000_000 + 100 * segment + number) for number in range(2 * fresh))
    stacks = random.sample(program.stacks, SAMPLES - fresh)
    stacks += [(own[2 * n], own[2 * n + 1], *_stack(random, program.functions)[2:]) for n in range(fresh)]
    row_id = random.randbytes(16)
    return tuple(
        ProfileRow(
            labels=series_labels(kind, service, pod=f"{service}-{random.randrange(3)}", namespace="production"),
            samples=tuple(Sample(stack, random.randrange(1, 1 << 30)) for stack in stacks),
            time_ns=TIME_NS + segment * 500_000_000,
            id=row_id,
        )
        for kind in TYPES[:ROWS]
    )


def write_segments(store: ObjectStore, count: int, services: int) -> list[SourceObject]:
    """Write segments of one shard and tenant; the first ones are equal for every count."""
    draw = random.Random(SEED)
    programs = [program(draw, service) for service in range(services)]
    sources = []
    for segment in range(count):
        datasets = [
            Dataset("tenant", f"service-{n}", dataset_rows(draw, programs[n], segment, f"service-{n}"))
            for n in range(services)
        ]
        block_id = ulids.make(TIME_MS + segment * 500, draw.randbytes(ulids.ENTROPY_BYTES))
        sources.append(write_block(store, datasets, id=block_id))
    return sources
