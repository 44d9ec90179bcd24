"""A segment writer for benchmarks: writes objects and registers them, at a steady rate or all at once.

``python -m tests.bench.segment_writer --shard 1 --count 40 --per-second 2``; rate 0 registers everything in one batch.
It runs in its own process because it needs the database settings of the stack.
"""

from __future__ import annotations

import argparse
import time

import django


def main() -> None:
    """Write ``count`` segments with new ids."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shard", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--per-second", type=float, default=0.0)
    options = parser.parse_args()
    django.setup()
    if options.per_second:
        write_steadily(options.shard, options.count, 1 / options.per_second)
    else:
        write_at_once(options.shard, options.count)


def write_steadily(shard: int, count: int, pause_seconds: float) -> None:
    """Build, store and register segments at a steady rate that a slow one does not delay."""
    started = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, started + number * pause_seconds - time.monotonic()))
        _register(shard, [number])


def write_at_once(shard: int, count: int) -> None:
    """Store all, then register all in as few commands as possible."""
    _register(shard, list(range(count)))


def _register(shard: int, numbers: list[int]) -> None:
    from django.conf import settings

    from engine.storage import open_store
    from tests.segments import make_segment, put_segment
    from webadmin.lanes.profiles.registration import BlockRegistration
    from webadmin.lanes.profiles.services import add_blocks
    from webadmin.lanes.profiles.services.add_blocks import BATCH_MAX

    store = open_store(settings.OBJECT_STORE_URL)
    now_ms = int(time.time() * 1000)
    registrations = []
    for number in numbers:
        data, meta = make_segment(now_ms, shard=shard, seed=number)
        put_segment(store, data, meta)
        registrations.append(BlockRegistration.of(meta))
    for start in range(0, len(registrations), BATCH_MAX):
        outcome = add_blocks(registrations[start : start + BATCH_MAX], actor="bench:segment_writer")
        assert not outcome.refused, outcome.refused


if __name__ == "__main__":
    main()
