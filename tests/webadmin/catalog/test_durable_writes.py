"""A write is seen before it is on disk: nobody is told of it before, and nothing is deleted for its sake."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import connection

from engine.catalog.object_entry import ObjectEntry
from tests.webadmin.catalog.order_steps import LOOK_AGAIN
from tests.webadmin.catalog.short import Catalog
from tests.webadmin.catalog.stepping import Stepped
from webadmin.catalog.places import catalog_store, data_prefix_of
from webadmin.catalog.services import collect_garbage as collecting
from webadmin.catalog.services.collect_garbage import collect_garbage
from webadmin.catalog.services.reset_branch import reset_key
from webadmin.catalog.services.write_objects import put_entry
from webadmin.database.disk_waits import wait_for_disk


def asked(statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


@contextmanager
def durable() -> Iterator[None]:
    """Let commits of this connection wait for the disk, which the server of the tests does without."""
    if connection.vendor != "postgresql":
        pytest.skip("a commit of SQLite's is on disk")
    asked("SELECT set_config('synchronous_commit', 'on', false)")
    try:
        yield
    finally:
        connection.cursor().execute("RESET synchronous_commit")


def test_nobody_is_told_of_a_write_that_a_crash_of_the_database_could_take_back(real_catalog: Catalog) -> None:
    """Nor that nothing had to be written, by what somebody else's write has shown."""
    places: list[str] = []

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if LOOK_AGAIN in sql:
            places.append(asked("SELECT pg_current_wal_insert_lsn()"))
        return execute(sql, params, many, context)

    with durable(), connection.execute_wrapper(note):
        for action in (
            lambda: real_catalog.put("k", "x"),
            lambda: real_catalog.put("k", "y", if_match="x"),
            lambda: real_catalog.put("l", "x", if_absent=True),
            lambda: real_catalog.delete("k"),
            lambda: real_catalog.delete("none"),
            lambda: reset_key(real_catalog.repository, "main", b"l"),
            lambda: reset_key(real_catalog.repository, "main", b"none"),
        ):
            asked("SELECT pg_logical_emit_message(false, 'test', '')::text")  # somebody's, which is not on disk yet
            action()
            assert asked(f"SELECT pg_current_wal_flush_lsn() >= '{places.pop()}'")
            assert places == []


def test_an_object_goes_only_when_what_replaced_it_is_on_disk(
    real_catalog: Catalog, monkeypatch: pytest.MonkeyPatch, settings: LazySettings
) -> None:
    repository, prefix = real_catalog.repository, data_prefix_of(real_catalog.repository)

    def put(name: str) -> None:
        catalog_store().put(prefix + name, b"1")
        os.utime(os.path.join(settings.OBJECT_STORE_URL, prefix + name), (0, 0))
        stored = ObjectEntry(address=f"data/{name}", size=1, checksum=name, written_at=0.0)
        put_entry(repository, "main", b"k", stored)

    waited: list[list[str]] = []

    def wait_and_note() -> None:
        waited.append([info.key for info in catalog_store().list(prefix)])
        wait_for_disk()

    monkeypatch.setattr(collecting, "wait_for_disk", wait_and_note)
    put("1")
    writing = Stepped(lambda: put("2"), LOOK_AGAIN)
    assert collect_garbage(repository).objects_deleted == 1
    assert waited == [[prefix + "1", prefix + "2"]], "before anything was deleted"
    writing.end()
    assert [info.key for info in catalog_store().list(prefix)] == [prefix + "2"]
