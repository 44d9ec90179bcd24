"""Small recordings for the demonstration's parts: real pprof files of made-up stacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_encode import encode_profile
from tests.webadmin.embedded.demo.listener import Listener
from webadmin.embedded.demo.plan import Recording

SERVICES = ("parser", "tables", "store", "templates")
WINDOWS = 3


def window(service: str, number: int) -> bytes:
    """A processor profile of one window: the function of the window's number takes the time."""
    builder = ProfileBuilder([("cpu", "nanoseconds")], period_type=("cpu", "nanoseconds"), period=10_000_000)
    for depth in range(3):
        stack = [Frame(f"{service}.step{number + level}", f"{service}.py", 1, 2) for level in range(depth, -1, -1)]
        builder.add(stack, [10_000_000 * (depth + 1)])
    return encode_profile(builder.profile(time_ns=1, duration_ns=250_000_000))


@pytest.fixture
def recordings(tmp_path: Path) -> list[Recording]:
    """Four services with one profile type and three windows each."""
    made = []
    for service in SERVICES:
        paths = []
        for number in range(WINDOWS):
            path = tmp_path / f"{service}-{number}.pb.gz"
            path.write_bytes(window(service, number))
            paths.append(path)
        made.append(Recording(service=service, name="process_cpu", windows=tuple(paths)))
    return made


@pytest.fixture
def listener() -> Iterator[Listener]:
    """Somebody who takes pushes."""
    listener = Listener()
    yield listener
    listener.close()
