"""Check the database: connection, tables of this build, durability of commits."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from webadmin.base.database.durability import unsafe_settings
from webadmin.embedded.deployment.findings import Finding, Level


def check_database() -> Iterator[Finding]:
    """Connect with DATABASE_URL and compare the applied migrations with those of this build."""
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        yield Finding(
            name="database",
            level=Level.ERROR,
            found=f"the database does not answer: {error}",
            advice="check DATABASE_URL, the server and the network between",
        )
        return
    if missing:
        yield Finding(
            name="database",
            level=Level.ERROR,
            found=f"migrations not applied: {len(missing)}",
            advice="run manage.py migrate",
        )
        return
    yield Finding(name="database", level=Level.OK, found=f"{connection.display_name} answers, all migrations applied")


def check_durability() -> Iterator[Finding]:
    """Read the settings with which a crash loses committed transactions, as a new connection has them."""
    with connection.cursor():  # Opens a connection if there is none.
        unsafe = unsafe_settings(connection)
    if not unsafe:
        yield Finding(name="durability", level=Level.OK, found="the database keeps what it confirms")
        return
    yield Finding(
        name="durability",
        level=Level.WARNING if settings.ALLOW_UNSAFE_DATABASE else Level.ERROR,
        found=f"the database has {', '.join(unsafe)}: a crash loses what it confirmed"
        + (", which ALLOW_UNSAFE_DATABASE=1 allows" if settings.ALLOW_UNSAFE_DATABASE else "; pushes are refused"),
        advice="turn it on for the server, the database and the role; for SQLite use synchronous=full in DATABASE_URL",
    )
