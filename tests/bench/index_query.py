"""Latency of an index query: the blocks of one tenant and one service in one hour, on PostgreSQL.

Estimate: of a million blocks in 30 days an hour has 1,400, and one service of one tenant is in a few dozen of them. One
index scan finds their datasets; then a few dozen blocks are read by primary key. That is a few milliseconds.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time

from engine.core import ulids
from tests.bench.database import embedded_postgresql, manage
from tests.bench.figures import Figures
from tests.block_factory import block_meta

NAME = "index_query"
BLOCKS, BLOCKS_FULL = 100_000, 1_000_000
DATASETS_PER_BLOCK = 4
TENANTS, SERVICES = 20, 10
DAYS, DAYS_FULL = 3, 30
"""Days of blocks; the blocks per hour are the same."""
BLOCK_MS = 500
HOUR_MS = 3_600_000
QUERIES = 50

# The rows of add_blocks: templates of each combination of tenants and services, repeated over time.
COPY_BLOCKS = """
INSERT INTO profiles_block ({columns})
SELECT {values} FROM generate_series(1::bigint, %(copies)s) AS n CROSS JOIN profiles_block b WHERE b.id <= %(templates)s
"""
COPY_DATASETS = """
INSERT INTO profiles_dataset (block_id, tenant_id, name_id, label_sets_id, position, format, min_time_ms, max_time_ms,
                           size_bytes, masks_applied)
SELECT b.id, d.tenant_id, d.name_id, d.label_sets_id, d.position, d.format, b.min_time_ms, b.max_time_ms,
       d.size_bytes, 0
FROM profiles_block b JOIN profiles_dataset d ON d.block_id = 1 + (b.id - 1) %% %(templates)s WHERE b.id > %(templates)s
"""


def run(full: bool) -> Figures:
    """Fill an index, then query hours in the middle of it repeatedly."""
    blocks, days = (BLOCKS_FULL, DAYS_FULL) if full else (BLOCKS, DAYS)
    with embedded_postgresql() as database, tempfile.TemporaryDirectory(prefix="lithify-bench-") as home:
        environment = {"LITHIFY_HOME": home, "DATABASE_URL": database, "LOG_LEVEL": "WARNING"}
        manage(environment, "migrate", "--verbosity", "0")
        os.environ.update(environment, DJANGO_SETTINGS_MODULE="webadmin.settings")
        import django

        django.setup()
        from django.db import connections

        try:
            start_ms = _fill(blocks, days)
            milliseconds, found = _measure(start_ms, days)
        finally:
            connections.close_all()
    return Figures(
        parameters={"blocks": blocks, "datasets_per_block": DATASETS_PER_BLOCK, "days": days, "blocks_found": found},
        figures={"ms": statistics.median(milliseconds), "p99_ms": sorted(milliseconds)[len(milliseconds) * 99 // 100]},
    )


def _fill(blocks: int, days: int) -> int:
    """Create this many live blocks over this many days; return the time of the first."""
    from django.db import connection

    from webadmin.lanes.profiles.models import Block
    from webadmin.lanes.profiles.registration import BlockRegistration
    from webadmin.lanes.profiles.services import add_blocks

    start_ms = int(time.time() * 1000) - days * 24 * HOUR_MS
    templates = [
        block_meta(
            ulids.make(start_ms, number.to_bytes(10, "big")),
            datasets=[
                (f"tenant-{number % TENANTS}", f"service-{(number // TENANTS + place) % SERVICES}")
                for place in range(DATASETS_PER_BLOCK)
            ],
        )
        for number in range(TENANTS * SERVICES)
    ]
    add_blocks([BlockRegistration.of(meta) for meta in templates], actor="bench", any_age=True)
    step_ms = days * 24 * HOUR_MS // blocks
    shift = f"((n * {len(templates)} + b.id) * {step_ms})"
    values = {
        "ulid": "lpad(to_hex(n * 1000000 + b.id), 26, '0')",
        **{name: f"b.{name} + {shift}" for name in ("min_time_ms", "max_time_ms", "created_at_ms")},
    }
    columns = [field.column for field in Block._meta.concrete_fields if field.column != "id"]
    parameters = {"copies": blocks // len(templates) - 1, "templates": len(templates)}
    fill = COPY_BLOCKS.format(
        columns=", ".join(columns), values=", ".join(values.get(column, f"b.{column}") for column in columns)
    )
    with connection.cursor() as cursor:
        cursor.execute(fill, parameters)
        cursor.execute(COPY_DATASETS, parameters)
        cursor.execute("ANALYZE")
    return start_ms


def _measure(start_ms: int, days: int) -> tuple[list[float], int]:
    """Query another hour and service each time; return the milliseconds of each, and the blocks of the last result."""
    from engine.formats.profile_block.selectors import parse_selector
    from webadmin.lanes.profiles.queries import IndexQuery, find_blocks

    milliseconds: list[float] = []
    found = 0
    for number in range(QUERIES + 5):
        begin = start_ms + (number * 13 + 5) % (days * 24 - 2) * HOUR_MS
        query = IndexQuery(
            tenants=(f"tenant-{number % TENANTS}",),
            start_ms=begin,
            end_ms=begin + HOUR_MS - BLOCK_MS,
            matchers=parse_selector(f'{{service_name="service-{number % SERVICES}"}}'),
        )
        started = time.perf_counter()
        found = len(find_blocks(query))
        milliseconds.append((time.perf_counter() - started) * 1000)
        assert found, "a query that finds nothing measures nothing"
    return milliseconds[5:], found
