"""Death before any statement of a commit, a compaction, a reset, a merge: nothing is lost, and the next one ends it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from tests.memory_store import MemoryStore
from tests.webadmin.lanes.catalog.short import CONTEXT, Catalog, new_catalog
from webadmin.lanes.catalog import places
from webadmin.lanes.catalog.services.reset_branch import reset_prefix

STRIDE = 1 if os.environ.get("LITHIFY_HISTORIES") else 6
"""The long run dies before each statement."""


class Died(Exception):
    """The process is gone."""


class DieAt:
    """Lets so many statements through and then dies: nothing of the transaction it was in stays."""

    def __init__(self, statements: int) -> None:
        self.left = statements

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if self.left <= 0 and not sql.startswith(("ROLLBACK", "SAVEPOINT", "RELEASE")):
            raise Died(sql)
        self.left -= 1
        return execute(sql, params, many, context)


def dies_everywhere(make: Callable[[str], Catalog], action: Callable[[Catalog], object]) -> list[Catalog]:
    """Let an action die before every so many of its statements, each time on a new repository; return those."""
    left = []
    for number in range(0, 400, STRIDE):
        catalog = make(f"dies-{number}")
        gate = DieAt(number)
        try:
            with connection.execute_wrapper(gate):
                action(catalog)
        except Died:
            transaction.set_rollback(False)  # no statement failed: what had no transaction of its own stays done
            left.append(catalog)
            continue
        assert gate.left >= 0
        assert number > 5
        return left
    raise AssertionError("it never comes to its end")


def prepared(name: str) -> Catalog:
    """A commit, a snapshot over it, and rows over that."""
    catalog = new_catalog(name=name)
    catalog.puts(a="x", b="x")
    catalog.commit()
    catalog.puts(b="y", c="x")
    catalog.compact()
    catalog.delete("a")
    catalog.put("d", "x")
    return catalog


VISIBLE = {"b": "y", "c": "x", "d": "x"}


@pytest.fixture
def in_memory(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All catalogs of a test lie in memory."""
    store = MemoryStore()
    monkeypatch.setattr(places, "catalog_store", lambda: store)


def test_a_commit_that_dies_anywhere_loses_nothing_and_leaves_no_pile(in_memory: None) -> None:
    for catalog in dies_everywhere(prepared, lambda catalog: catalog.commit()):
        assert catalog.visible() == VISIBLE
        assert len(catalog.record().sealed) <= 1
        if catalog.diff():
            assert catalog.committed() == {"a": "x", "b": "x"}
            catalog.commit()
        assert (catalog.committed(), catalog.record().sealed, catalog.record().snapshot) == (VISIBLE, (), None)


def test_a_compaction_that_dies_anywhere_changes_nothing_that_is_seen(in_memory: None) -> None:
    for catalog in dies_everywhere(prepared, lambda catalog: catalog.compact()):
        assert (catalog.visible(), catalog.committed()) == (VISIBLE, {"a": "x", "b": "x"})
        catalog.compact()
        assert (catalog.visible(), catalog.record().sealed) == (VISIBLE, ())


def test_resets_and_merges_that_die_are_done_or_not(in_memory: None) -> None:
    def reset(catalog: Catalog) -> None:
        reset_prefix(catalog.repository, "main", b"", context=CONTEXT)

    for catalog in dies_everywhere(prepared, reset):
        assert catalog.visible() in (VISIBLE, {"a": "x", "b": "x"})
        reset(catalog)
        assert (catalog.visible(), catalog.diff()) == ({"a": "x", "b": "x"}, [])

    def with_work(name: str) -> Catalog:
        catalog = new_catalog(name=f"m-{name}")
        catalog.branch("work")
        catalog.put("w", "x", "work")
        catalog.commit("work")
        return catalog

    for catalog in dies_everywhere(with_work, lambda catalog: catalog.merge("work")):
        assert catalog.visible() == catalog.committed()
        if not catalog.visible():
            catalog.merge("work")
        assert catalog.committed() == {"w": "x"}
