"""Parse ``DATABASE_URL`` into Django's settings, for SQLite and PostgreSQL.

``sqlite:///relative.sqlite3``, ``sqlite:////absolute.sqlite3?synchronous=off``;
``postgresql://user:password@host:5432/name?host=/socket/folder&connect_timeout=5`` (other parameters go to libpq).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from engine.core.errors import LithifyError

SQLITE_BUSY_SECONDS = 30
"""How long a connection waits for the single writer; far above any of our transactions, below a proxy's time-out."""

SESSION = {
    # A machine that is lost in the middle of a transaction holds its locks until the server detects that.
    "idle_in_transaction_session_timeout": "5min",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
"""Settings of PostgreSQL's sessions. ``?options=…`` in the URL overrides them."""
CONNECTION = {
    "connect_timeout": "5",  # seconds
    "tcp_user_timeout": "15000",  # milliseconds until a connection whose packets are not acknowledged is closed
    "keepalives_idle": "30",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}
"""Parameters of libpq by which a lost server is detected; parameters in the URL override them."""

SYNCHRONOUS_MODES = {"full", "normal", "off"}


class BadDatabaseUrl(LithifyError):
    """DATABASE_URL names no database that Lithify supports."""

    code = "bad_database_url"


def database_settings(url: str) -> dict[str, Any]:
    """Return the entry of Django's ``DATABASES`` for this URL."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return _sqlite(parts.path, dict(parse_qsl(parts.query)))
    if parts.scheme in {"postgresql", "postgres"}:
        return _postgresql(url)
    raise BadDatabaseUrl(
        f"DATABASE_URL has {parts.scheme or 'no'} scheme: use sqlite:///file or postgresql://user@host/name"
    )


def _sqlite(path: str, parameters: dict[str, str]) -> dict[str, Any]:
    synchronous = parameters.get("synchronous", "full").lower()
    if synchronous not in SYNCHRONOUS_MODES or not path.strip("/"):
        raise BadDatabaseUrl("DATABASE_URL: sqlite:///file[?synchronous=full|normal|off] is the form of an SQLite URL")
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": unquote(path[1:]),
        "OPTIONS": {
            # A transaction that will write takes the write lock at its start; otherwise two readers that both begin to
            # write would fail at once instead of waiting for each other.
            "transaction_mode": "IMMEDIATE",
            "timeout": SQLITE_BUSY_SECONDS,
            "init_command": f"PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous.upper()};",
        },
    }


def _postgresql(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    options = CONNECTION | dict(parse_qsl(parts.query))
    session = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
    options["options"] = f"{session} {options.get('options', '')}".rstrip()
    host = options.pop("host", None) or parts.hostname or ""
    name = unquote(parts.path.lstrip("/"))
    if not name:
        raise BadDatabaseUrl("DATABASE_URL has no database name at its end")
    return {
        "ENGINE": "webadmin.base.database.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": str(options.pop("port", None) or parts.port or ""),
        "CONN_MAX_AGE": 300,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": options,
    }
