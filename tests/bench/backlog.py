"""A schedule under load, for benchmarks of polls: a backlog of queued blocks that are ready for compaction.

One real block per queue is added by the service; the others are copied from it by SQL, with the rows that the service
would write (block, dataset and ledger rows with all their indexes). The sums of the queues are computed by the
service's code. Half of the blocks are segments, half are first results of tenants.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence

from engine.core import ulids
from engine.formats.profile_block.model import BlockMeta
from tests.bench.database import embedded_postgresql, manage
from tests.block_factory import block_meta

SEGMENT_SHARDS = 32
TENANTS, TENANT_SHARDS = 20, 8
TENANTS_PER_SEGMENT = 2
LEASE_SECONDS = 3600
"""Lease duration: unreported jobs must stay leased during a benchmark."""

KEEP_TEMPLATES = """
CREATE TABLE bench_block AS SELECT * FROM profiles_block;
CREATE TABLE bench_dataset AS SELECT * FROM profiles_dataset;
CREATE TABLE bench_ledger AS SELECT * FROM profiles_acceptedid
"""
COPY_BLOCKS = """
INSERT INTO profiles_block ({columns}) SELECT {values}
FROM bench_block b CROSS JOIN generate_series(%(first)s::bigint, %(last)s) AS n WHERE b.level = %(level)s
"""
COPIED = {
    "ulid": "substr(b.ulid, 1, 10) || lpad((b.id * 10000000 + n)::text, 16, '0')",
    "object_key": "replace(b.object_key, b.ulid, substr(b.ulid, 1, 10) || lpad((b.id * 10000000 + n)::text, 16, '0'))",
}
COPY_DATASETS = """
INSERT INTO profiles_dataset (block_id, tenant_id, name_id, label_sets_id, position, format, min_time_ms, max_time_ms,
                           size_bytes, masks_applied)
SELECT b.id, d.tenant_id, d.name_id, d.label_sets_id, d.position, d.format, d.min_time_ms, d.max_time_ms,
       d.size_bytes, 0
FROM profiles_block b JOIN bench_block t ON t.queue_id = b.queue_id JOIN bench_dataset d ON d.block_id = t.id
WHERE b.id > %(newer)s
"""
COPY_LEDGER = """
INSERT INTO profiles_acceptedid (shard, ulid, content_digest, accepted_at_ms, command_index)
SELECT b.shard, b.ulid, a.content_digest, b.arrived_at_ms, b.added_command_index
FROM profiles_block b JOIN bench_block t ON t.queue_id = b.queue_id
JOIN bench_ledger a ON a.shard = t.shard AND a.ulid = t.ulid WHERE b.id > %(newer)s
"""
COUNT_QUEUES = """
UPDATE profiles_levelqueue q SET block_count = q.block_count + %(copies)s,
       byte_count = q.byte_count + %(copies)s * b.size_bytes
FROM bench_block b WHERE b.queue_id = q.id AND q.level = %(level)s
"""

INDEXES = """
SELECT indexname, indexdef FROM pg_indexes
WHERE tablename IN ('profiles_block', 'profiles_dataset', 'profiles_acceptedid')
      AND indexname NOT IN (SELECT conname FROM pg_constraint)
"""
LOADING = {"fsync": "off", "max_wal_size": "8GB"}


@contextlib.contextmanager
def schedule_database() -> Iterator[dict[str, str]]:
    """Start PostgreSQL, migrate it, and set Django up on it; yield the environment for further processes."""
    with embedded_postgresql() as database, tempfile.TemporaryDirectory(prefix="lithify-bench-") as home:
        environment = {"LITHIFY_HOME": home, "DATABASE_URL": database, "LOG_LEVEL": "ERROR"}
        manage(environment, "migrate", "--verbosity", "0")
        os.environ.update(environment, DJANGO_SETTINGS_MODULE="webadmin.settings")
        import django

        django.setup()
        from django.db import connections

        try:
            set_limits()
            yield environment
        finally:
            connections.close_all()


def set_limits() -> None:
    """Set the lease duration and the job limit for benchmarks."""
    from engine.schedule.limits import EVERYTHING, LimitName
    from webadmin.base.actions.action import ActionContext
    from webadmin.schedule.services.change_limit import change_limit

    for name, value in ((LimitName.LEASE_SECONDS, LEASE_SECONDS), (LimitName.QUEUE_MAX, 0)):
        change_limit(name=name, scope=EVERYTHING, value=value, context=ActionContext(actor="bench"))


class Backlog:
    """The queued blocks of an initially empty index; their number can grow."""

    def __init__(self) -> None:
        from django.db import connection

        from webadmin.lanes.profiles.registration import BlockRegistration
        from webadmin.lanes.profiles.services import add_blocks

        metas = _templates(int(time.time() * 1000) - 3_600_000)
        add_blocks([BlockRegistration.of(meta) for meta in metas], actor="bench", any_age=True)
        self.block_count = len(metas)
        self._copies = {0: 0, 1: 0}
        with connection.cursor() as cursor:
            cursor.execute(KEEP_TEMPLATES)

    def grow(self, block_count: int) -> None:
        """Add about ``block_count`` blocks, half of them segments; the queues share each half evenly."""
        from django.db import connection

        from webadmin.lanes.profiles.models import Block

        newer = Block.objects.order_by("-id").values_list("id", flat=True)[0]
        columns = [field.column for field in Block._meta.concrete_fields if field.column != "id"]
        copy = COPY_BLOCKS.format(
            columns=", ".join(columns), values=", ".join(COPIED.get(column, f"b.{column}") for column in columns)
        )
        with _not_durable(), _without_indexes(), connection.cursor() as cursor:
            cursor.execute("SET session_replication_role = replica")  # Copies have the foreign keys of their templates.
            for level, queue_count in ((0, SEGMENT_SHARDS), (1, TENANTS * TENANT_SHARDS)):
                first, copies = self._copies[level] + 1, block_count // 2 // queue_count
                self._copies[level] += copies
                self.block_count += copies * queue_count
                cursor.execute(copy, {"first": first, "last": first + copies - 1, "level": level})
                cursor.execute(COUNT_QUEUES, {"copies": copies, "level": level})
            for statement in (COPY_DATASETS, COPY_LEDGER):
                cursor.execute(statement, {"newer": newer})
            cursor.execute("RESET session_replication_role")
        _settle()
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")


def _templates(time_ms: int) -> Sequence[BlockMeta]:
    """Return one block per queue."""
    ids = iter(range(1, 1 << 20))

    def block_id() -> str:
        return ulids.make(time_ms, next(ids).to_bytes(10, "big"))

    segments = [
        block_meta(
            block_id(),
            shard=shard,
            datasets=[(f"tenant-{(shard + n) % TENANTS:02}", "web") for n in range(TENANTS_PER_SEGMENT)],
        )
        for shard in range(1, SEGMENT_SHARDS + 1)
    ]
    results = [
        block_meta(block_id(), shard=shard, level=1, tenant=name, datasets=[(name, "web")], with_index=True)
        for shard in range(1, TENANT_SHARDS + 1)
        for name in (f"tenant-{number:02}" for number in range(TENANTS))
    ]
    return [*segments, *results]


def _settle() -> None:
    from django.db import transaction

    from webadmin.lanes.profiles.level_models import LevelQueue
    from webadmin.lanes.profiles.planning.level_policies import LevelPolicies
    from webadmin.lanes.profiles.planning.level_queues import resettle_queues

    with transaction.atomic():
        resettle_queues(LevelQueue.objects.all(), LevelPolicies())


@contextlib.contextmanager
def _not_durable() -> Iterator[None]:
    """Load with relaxed durability; measurements afterwards use the server's usual, durable settings."""
    from django.db import connection

    with connection.cursor() as cursor:
        for setting, value in LOADING.items():
            cursor.execute(f"ALTER SYSTEM SET {setting} = '{value}'")
        cursor.execute("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            for setting in LOADING:
                cursor.execute(f"ALTER SYSTEM RESET {setting}")
            cursor.execute("SELECT pg_reload_conf()")
            cursor.execute("CHECKPOINT")


@contextlib.contextmanager
def _without_indexes() -> Iterator[None]:
    """Drop the indexes of the large tables during a load and rebuild them, which takes a third of the time.

    Indexes of constraints are kept.
    """
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(INDEXES)
        indexes = cursor.fetchall()
        for name, _ in indexes:
            cursor.execute(f'DROP INDEX "{name}"')
        try:
            yield
        finally:
            cursor.execute("SET maintenance_work_mem = '256MB'")
            for _, definition in indexes:
                cursor.execute(definition)
            cursor.execute("RESET maintenance_work_mem")
