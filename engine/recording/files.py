"""Recorded profiles as files: ``DIR/SERVICE/PROFILE_NAME-WINDOW.pb.gz``, written after the end of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.formats.pprof.pprof_build import ProfileBuilder, ValueType
from engine.formats.pprof.pprof_encode import encode_profile
from engine.recording import sampler
from engine.recording.sampler import INTERVAL_SECONDS, Window
from engine.recording.stacks import Namer, Place, Stack, is_scaffolding

SUFFIX = ".pb.gz"
MEMORY_PERIOD_BYTES = 1
"""Sampling period of memory: tracemalloc traces every allocation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileKind:
    """A kind of profile: its ``__name__``, its sample types, and the function that returns a window's values."""

    name: str
    sample_types: tuple[ValueType, ...]
    period_type: ValueType
    period: int
    values: Callable[[Window], Iterator[tuple[Stack, list[int]]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One recorded profile on disk."""

    service: str
    profile_name: str
    path: Path


def _cpu_values(window: Window) -> Iterator[tuple[Stack, list[int]]]:
    return ((stack, [window.looks[stack], spent]) for stack, spent in window.cpu.items())


def _wall_values(window: Window) -> Iterator[tuple[Stack, list[int]]]:
    return ((stack, [elapsed]) for stack, elapsed in window.wall.items())


def _memory_values(window: Window) -> Iterator[tuple[Stack, list[int]]]:
    for (size, site), count in window.memory.items():
        # Skip allocations of the sampler itself.
        if all(filename != sampler.__file__ for filename, _ in site):
            places = (Place(filename, line, None) for filename, line in site if not is_scaffolding(filename))
            yield tuple(places), [count, count * size]


_INTERVAL_NS = int(INTERVAL_SECONDS * 1e9)

KINDS = (
    ProfileKind(
        name="process_cpu",
        sample_types=(("samples", "count"), ("cpu", "nanoseconds")),
        period_type=("cpu", "nanoseconds"),
        period=_INTERVAL_NS,
        values=_cpu_values,
    ),
    ProfileKind(
        name="wall",
        sample_types=(("wall", "nanoseconds"),),
        period_type=("wall", "nanoseconds"),
        period=_INTERVAL_NS,
        values=_wall_values,
    ),
    ProfileKind(
        name="memory",
        sample_types=(("inuse_objects", "count"), ("inuse_space", "bytes")),
        period_type=("space", "bytes"),
        period=MEMORY_PERIOD_BYTES,
        values=_memory_values,
    ),
)


def write_recordings(directory: Path, service: str, windows: Sequence[Window]) -> list[Recording]:
    """Write one file per kind and window with samples; return them sorted by time."""
    folder = directory / service
    folder.mkdir(parents=True, exist_ok=True)
    namer = Namer()
    written = []
    for number, window in enumerate(windows):
        for kind in KINDS:
            builder = ProfileBuilder(
                kind.sample_types, period_type=kind.period_type, period=kind.period, program=service
            )
            for stack, values in kind.values(window):
                builder.add((namer.frame(place) for place in stack), values)
            if len(builder):
                path = folder / f"{kind.name}-{number:05d}{SUFFIX}"
                profile = builder.profile(time_ns=window.time_ns, duration_ns=window.duration_ns)
                path.write_bytes(encode_profile(profile))
                written.append(Recording(service=service, profile_name=kind.name, path=path))
    return written


def read_recordings(directory: Path) -> list[Recording]:
    """Return the recordings under a directory sorted by window number, so that services are interleaved."""
    found = []
    for path in directory.glob(f"*/*{SUFFIX}"):
        profile_name, _, number = path.name.removesuffix(SUFFIX).rpartition("-")
        found.append((number, path.parent.name, profile_name, path))
    return [Recording(service=service, profile_name=name, path=path) for _, service, name, path in sorted(found)]
