"""A flame graph of 24 hours of one service: the same query on segments, and on the blocks they are merged to.

Estimate: 2,880 segments of half a minute have 20,160 CPU profiles, which are 40,320 rows of 60 samples: 2.4 million
samples. Opening a segment (footer, series and symbols) costs about 3 ms; after three rounds of merges there are 2
objects with 2.4 million samples to decode and sum: about 100 ms at 20 to 30 million per second.

The index is PostgreSQL, the objects are in a folder, every query runs on an engine with an empty cache.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.core import ulids
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_model import Profile
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.container.object_names import block_key
from engine.formats.profile_block.merge_model import Scratch
from engine.formats.profile_block.model import BlockMeta
from engine.formats.profile_block.selectors import parse_selector
from engine.ingest.segments.segment import SegmentBuilder
from engine.lanes.profiles.jobs import SourceObject
from engine.lanes.profiles.merge.merge import run as run_merge
from engine.query.flame.tree import FlameTree
from engine.query.model import QueryReport, Question
from engine.query.select_points import Grid
from engine.storage import ObjectStore, open_store
from tests.bench.database import embedded_postgresql, manage
from tests.bench.figures import Figures
from tests.bench.profile_segments import Program, program
from tests.engine.formats.profile_block.factories import CPU, merge_spec, source_object

NAME = "query"
SEGMENTS, SEGMENTS_FULL = 2_880, 8_640
PROFILES = 7
SAMPLES = 60
POOL = 40
DAY_MS = 24 * 3_600_000
SEED = 20261121
TENANT, SERVICE, OTHER = "tenant", "checkout", "search"
FAN_IN = (20, 10, 10)
"""Blocks of each level that are merged to one of the next, as in the default policy."""
RUNS = 5


def run(full: bool) -> Figures:
    """Write the segments of a day and query; merge them and query again."""
    segments = SEGMENTS_FULL if full else SEGMENTS
    with embedded_postgresql() as database, tempfile.TemporaryDirectory(prefix="lithify-bench-") as home:
        environment = {"LITHIFY_HOME": home, "DATABASE_URL": database, "LOG_LEVEL": "WARNING"}
        manage(environment, "migrate", "--verbosity", "0")
        os.environ.update(environment, DJANGO_SETTINGS_MODULE="webadmin.settings")
        import django

        django.setup()
        from django.conf import settings
        from django.db import connections

        try:
            store = open_store(settings.OBJECT_STORE_URL)
            start_ms = int(time.time() * 1000) - 2 * DAY_MS
            sources = _write(store, segments, start_ms)
            before, before_ms, total = _ask(sources, start_ms, runs=1)
            merged = _compact(store, sources, Path(home) / "scratch")
            after, after_ms, total_after = _ask(merged, start_ms, runs=RUNS)
            points_ms, warm_ms = _others(start_ms)
        finally:
            connections.close_all()
    assert total == total_after, "a merge changes no answer"
    return Figures(
        parameters={"profiles": segments * PROFILES, "samples_per_profile": SAMPLES, "rows": after.cost.rows_read},
        figures={
            "objects_before": before.cost.objects_opened,
            "objects_after": after.cost.objects_opened,
            "bytes_before": before.cost.bytes_read,
            "bytes_after": after.cost.bytes_read,
            "ms_before": before_ms,
            "ms_after": after_ms,
            "ms_after_again": warm_ms,
            "ms_points_after": points_ms,
            **{f"ms_after_{name}": 1000 * seconds for name, seconds in after.cost.phases.items()},
        },
    )


def _question(start_ms: int) -> Question:
    question = Question(start_ms=start_ms, end_ms=start_ms + DAY_MS - 1)
    return replace(question, matchers=parse_selector(f'{{service_name="{SERVICE}"}}')).of_type(CPU)


def _ask(objects: Sequence[SourceObject], start_ms: int, *, runs: int) -> tuple[QueryReport, float, int]:
    """Index these objects only and query; return the last report, the median time and the tree's total."""
    from webadmin.lanes.profiles.models import Block, Dataset
    from webadmin.lanes.profiles.registration import BlockRegistration
    from webadmin.lanes.profiles.services import add_blocks
    from webadmin.query import questions

    Dataset.objects.all().delete()
    Block.objects.all().delete()
    metas = [replace(decode_metadata(each.metadata), size=each.size) for each in objects]
    for first in range(0, len(metas), 500):
        outcome = add_blocks(
            [BlockRegistration.of(meta) for meta in metas[first : first + 500]], actor="bench", any_age=True
        )
        assert not outcome.refused, outcome
    milliseconds = []
    for _ in range(runs):
        questions._current = None  # A process without a query engine.
        started = time.perf_counter()
        answer = questions.query_stacks((TENANT,), _question(start_ms), FlameTree)
        milliseconds.append((time.perf_counter() - started) * 1000)
        assert not answer.report.damage
    return answer.report, statistics.median(milliseconds), answer.result.total


def _others(start_ms: int) -> tuple[float, float]:
    """Return the times of a timeline with a group, and of a repeated flame graph query."""
    from webadmin.query import questions

    grid = Grid(start_ms=start_ms, end_ms=start_ms + DAY_MS, step_ms=120_000, group_by=("pod",))
    points, again = [], []
    for _ in range(RUNS):
        questions._current = None
        started = time.perf_counter()
        assert questions.query_points((TENANT,), _question(start_ms), grid).result
        points.append((time.perf_counter() - started) * 1000)
        questions.query_stacks((TENANT,), _question(start_ms), FlameTree)
        started = time.perf_counter()
        questions.query_stacks((TENANT,), _question(start_ms), FlameTree)
        again.append((time.perf_counter() - started) * 1000)
    return statistics.median(points), statistics.median(again)


def _profiles(draw: random.Random, program: Program) -> list[Profile]:
    """Return a pool of CPU profiles of a program, as Go sends them."""
    found = []
    for _ in range(POOL):
        builder = ProfileBuilder(
            [("samples", "count"), ("cpu", "nanoseconds")], period_type=("cpu", "nanoseconds"), period=10_000_000
        )
        for stack in draw.sample(program.stacks, SAMPLES):
            count = draw.randrange(1, 40)
            builder.add([Frame(name, "program.go", 10, 1) for name in stack], [count, count * 10_000_000])
        found.append(builder.profile(time_ns=1, duration_ns=10_000_000_000))
    return found


def _write(store: ObjectStore, count: int, start_ms: int) -> list[SourceObject]:
    """Write a day of segments of one shard."""
    draw = random.Random(SEED)
    pools = {name: _profiles(draw, program(draw, n)) for n, name in enumerate((SERVICE, OTHER))}
    step_ms = DAY_MS // count
    sources = []
    for segment in range(count):
        builder = SegmentBuilder(1, created_by="bench")
        for number in range(PROFILES + 1):
            name = SERVICE if number < PROFILES else OTHER
            labels = {"__name__": "process_cpu", "service_name": name, "pod": f"pod-{number}", "region": "eu"}
            time_ms = start_ms + segment * step_ms + number * (step_ms // (PROFILES + 1))
            builder.add(TENANT, labels, replace(draw.choice(pools[name]), time_ns=time_ms * 1_000_000))
        data, meta = builder.build(ulids.make(start_ms + segment * step_ms, draw.randbytes(ulids.ENTROPY_BYTES)))
        sources.append(_put(store, data, meta))
    return sources


def _put(store: ObjectStore, data: bytes, meta: BlockMeta) -> SourceObject:
    key = block_key(meta.shard, "", 0, meta.id)
    store.put(key, data)
    return source_object(key, meta)


def _compact(store: ObjectStore, sources: list[SourceObject], scratch: Path) -> list[SourceObject]:
    """Merge level by level, as the default policy does with a complete backlog."""
    for level, fan_in in enumerate(FAN_IN):
        results = []
        for first in range(0, len(sources), fan_in):
            spec = merge_spec(sources[first : first + fan_in], shard=1, level=level, tenant=TENANT if level else "")
            for block in run_merge(spec, store, scratch=Scratch(scratch)).blocks:
                meta = replace(decode_metadata(block.metadata), size=block.size)
                results.append(source_object(block.key, meta))
        sources = results
    return sources
