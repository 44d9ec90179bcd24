"""Settings of Django processes (web, writers, beat, control, commands) and of the metrics of every process.

``webadmin.settings`` makes Django's settings of them.
"""

from __future__ import annotations

from typing import Any

from engine.settings.base import (
    Days,
    EnvironmentSettings,
    Folder,
    LogLevel,
    Names,
    Seconds,
    Size,
    StoreUrl,
    StoreUrls,
    WholeSeconds,
    setting,
)
from engine.settings.lanes import LaneSettings

KEPT = "created once, stored in LITHIFY_HOME"


def _in_home(prefix: str, name: str) -> Any:
    return lambda found: f"{prefix}{found['LITHIFY_HOME']}/{name}"


class BrokerSettings(EnvironmentSettings):
    """The broker of web, control, beat and nodes."""

    BROKER_URL: str = setting(
        "the Celery broker; without it up starts its own Redis server",
        "redis://127.0.0.1:6379/0",
        default_text="Redis on this machine",
        secret="url",
    )


class InstallationSettings(BrokerSettings, LaneSettings):
    """What Django processes and nodes share."""

    LITHIFY_HOME: Folder = setting(
        "folder for files that this installation creates; not accessible to other users of the machine", ".lithify"
    )
    OBJECT_STORE_URL: StoreUrl = setting(
        "the object store: file:///path or s3://bucket/prefix?endpoint=…&region=…",
        default_factory=_in_home("file://", "objects"),
        default_text="a folder in LITHIFY_HOME",
    )
    LOG_LEVEL: LogLevel = setting("level of the console log", "INFO")


class MetricsSettings(EnvironmentSettings):
    """Where beat, control and node serve their metrics; read apart, because errors here do not stop a process."""

    METRICS_PORT: int | None = setting(
        "port on which beat, control and node serve their metrics", None, default_text="none: off", ge=0, le=65_535
    )
    METRICS_HOST: str = setting("address of that port", "127.0.0.1")


class ServiceSettings(InstallationSettings):
    """Settings of every Django process."""

    STORE_ROOTS: StoreUrls = setting(
        "comma separated URLs: operators may adopt tables and buckets below them", [], default_text="none"
    )
    DATABASE_URL: str = setting(
        "sqlite:///path or postgresql://…; parameters of the URL are passed to libpq",
        default_factory=_in_home("sqlite:///", "lithify.sqlite3"),
        default_text="SQLite in LITHIFY_HOME",
        secret="url",
    )
    DATABASE_STATEMENT_SECONDS: Seconds | None = setting(
        "maximum duration of a statement on PostgreSQL; 0: no limit",
        None,
        default_text="web 10, writer 5, control and beat 60, commands none",
        ge=0,
    )
    TABLES_URL: StoreUrl = setting(
        "a tenant may create tables in its own folder below it",
        default_factory=_in_home("file://", "tables"),
        default_text="a folder in LITHIFY_HOME",
    )
    SECRET_KEY: str = setting("Django's secret key", "", default_text=KEPT, secret="value")
    LITHIFY_TOKEN_KEYS: Names = setting(
        "keys that sign tokens, documents in the bucket and pushes to segment writers, newest first, comma separated",
        [],
        default_text=KEPT,
        secret="value",
    )
    ALLOW_UNSAFE_DATABASE: bool = setting("1: acknowledge pushes although a crash of the database may lose them", False)
    DEBUG: bool = setting("1 for tracebacks in the browser", False)
    ALLOWED_HOSTS: Names = setting(
        "comma separated host names; including those that senders of profiles use",
        ["localhost", "127.0.0.1", "[::1]"],
        default_text="this machine only",
    )
    HTTPS: bool = setting("1 when the site is served over TLS only", False)
    CSRF_TRUSTED_ORIGINS: Names = setting(
        "comma separated origins, behind a proxy that changes the host", [], default_text="none"
    )
    HISTORY_DAYS: Days = setting(
        "time for which entries of the command log and attempts of ended jobs are kept; 0: unlimited", 90, ge=0
    )
    STALLED_AFTER_SECONDS: WholeSeconds = setting(
        "time without progress of due work after which /progressz is unhealthy", 900, ge=0
    )
    METRICS_TOKEN: str = setting(
        "bearer token of /metrics, /progressz and the schema for programs",
        "",
        default_text="created once, stored in LITHIFY_HOME/metrics_token",
        secret="value",
    )
    PROXY_COUNT: int = setting("number of reverse proxies in front of web that append to X-Forwarded-For", 0, ge=0)
    LOGIN_FAILURES_MAX: int = setting(
        "failed logins of an account, or from an address, before it is locked for 15 minutes", 10, ge=1
    )
    CREDENTIAL_REQUESTS_PER_SECOND: float = setting(
        "requests per second of one credential in each web process; 0: unlimited", 100.0, ge=0
    )
    WRITER_FLUSH_SECONDS: Seconds = setting("time from the first profile to the flush of a segment writer", 0.5, ge=0)
    WRITER_FLUSH_BYTES: Size = setting("bytes at which it flushes earlier", 32 << 20, ge=1)
    WRITER_MEMORY_BYTES: Size = setting(
        "maximum bytes of pushes in progress; further ones are refused", 256 << 20, ge=1
    )
    WRITER_SUSPECT_SECONDS: Seconds = setting(
        "time without a heartbeat after which a segment writer gets no pushes", 3.0, ge=0
    )
    WRITER_TIMEOUT_SECONDS: Seconds = setting(
        "time without a heartbeat after which its shards move to the others", 60.0, ge=0
    )
    PLACEMENT_CONFIDENCE_SECONDS: Seconds = setting(
        "time for which usage is gathered before the first placement rules are published", 0.0, ge=0
    )
    QUERY_THREADS: int = setting("threads that read blocks for all queries of a process", 8, ge=1)
    QUERY_CACHE_BYTES: Size = setting("cache for footers, series and symbols", 128 << 20, ge=0)
    QUERY_MEMORY_BYTES: Size = setting("memory of a process for all running queries", 1 << 30, ge=1)
    QUERY_WAITING: int = setting("maximum number of queries that wait for memory; further ones get 503", 32, ge=0)
    QUERY_WAIT_SECONDS: Seconds = setting("maximum time that a query waits for memory", 10.0, ge=0)
    QUERY_BYTES: Size = setting("maximum bytes that one query may read", 8 << 30, ge=1)
    QUERY_SECONDS: Seconds = setting("maximum duration of a query", 60.0, ge=0)
    QUERY_LENGTH_SECONDS: WholeSeconds = setting(
        "maximum time range of a viewer's query; 0: unlimited", 31 * 86_400, ge=0
    )
    QUERY_LOOKBACK_SECONDS: WholeSeconds = setting("maximum age of data that viewers can query; 0: unlimited", 0, ge=0)
    CATALOG_OBJECT_BYTES: Size = setting(
        "maximum size of an object that is uploaded through the catalog's API", 5 << 30, ge=1
    )
    CATALOG_REPOSITORY_GRACE_SECONDS: WholeSeconds = setting(
        "time for which a deleted repository of the catalog can be restored", 7 * 86_400, ge=0
    )
    DISTRIBUTOR_ZONE: str = setting(
        "zone of this web process: segment writers of this zone are tried first", "", default_text="none"
    )
    TRUST_TENANT_HEADER: bool = setting("1: accept pushes without a credential, for the tenant in X-Scope-OrgID", False)
