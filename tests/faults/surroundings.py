"""The services of a stack: PostgreSQL and a bucket, each behind a proxy with traps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.faults.database_proxy import database_proxy
from tests.faults.http_proxy import http_proxy
from tests.faults.postgresql import running_postgresql
from tests.faults.stack import OBJECTS_PREFIX, Surroundings
from tests.object_stores import S3Server


@contextmanager
def surroundings(s3_server: S3Server) -> Iterator[Surroundings]:
    """Run the services of a stack with a migrated database and a new bucket."""
    with ExitStack() as parts:
        postgresql = parts.enter_context(running_postgresql())
        store = parts.enter_context(http_proxy(s3_server.endpoint))
        bucket = s3_server.new_bucket()
        yield Surroundings(
            postgresql=postgresql,
            database=parts.enter_context(database_proxy(postgresql.socket_file)),
            store=store,
            store_url=s3_server.store_url(bucket, OBJECTS_PREFIX),
            proxied_store_url=S3Server(store.url).store_url(bucket, OBJECTS_PREFIX),
        )
