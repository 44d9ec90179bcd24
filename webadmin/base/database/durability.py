"""Settings of the database with which a crash can lose acknowledged data, read at each new connection.

The last reading of this process counts: if they cannot be read because the database is unavailable, nothing changes. A
transaction that sets ``synchronous_commit`` to off for itself (decision 0029) is not detected, because it runs later.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS
from django.db.backends.base.base import BaseDatabaseWrapper

from engine.core.errors import LithifyError

SQLITE_FULL = 2
SQLITE_MODES = {0: "off", 1: "normal"}
POSTGRESQL_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")
_READ_POSTGRESQL = f"SELECT {', '.join(f'current_setting({name!r})' for name in POSTGRESQL_SETTINGS)}"

_found: tuple[str, ...] = ()


class UnsafeDatabase(LithifyError):
    """With the database's settings a crash can lose confirmed commits, so nothing is acknowledged."""

    code = "unsafe_database"
    retryable = True


def read_at_connection(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Read the settings of a new connection: a receiver of ``connection_created``, outside of any transaction."""
    global _found
    if connection.alias == DEFAULT_DB_ALIAS:
        _found = unsafe_settings(connection)


def unsafe_settings(connection: BaseDatabaseWrapper) -> tuple[str, ...]:
    """Return the settings of an open connection that reduce durability, as ``name=value``."""
    raw: Any = connection.connection
    if connection.vendor == "postgresql":
        values = raw.execute(_READ_POSTGRESQL).fetchone()
        return tuple(f"{name}=off" for name, value in zip(POSTGRESQL_SETTINGS, values, strict=True) if value == "off")
    (mode,) = raw.execute("PRAGMA synchronous").fetchone()
    return (f"synchronous={SQLITE_MODES.get(mode, mode)}",) if mode < SQLITE_FULL else ()


def refusal() -> str:
    """Return why nothing may be acknowledged; "" if the settings are safe, allowed, or not known yet."""
    if not _found or settings.ALLOW_UNSAFE_DATABASE:
        return ""
    return (
        f"the database has {', '.join(_found)}: a crash loses what it confirmed; turn it on for the server, the "
        "database and the role (SQLite: synchronous=full in DATABASE_URL), or set ALLOW_UNSAFE_DATABASE=1"
    )


def check_durable() -> None:
    """Raise UnsafeDatabase if nothing may be acknowledged."""
    if reason := refusal():
        raise UnsafeDatabase(reason)
