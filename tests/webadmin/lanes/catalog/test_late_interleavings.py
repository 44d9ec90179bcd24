"""The interleavings of the reference from 31 on: garbage, deletions, deaths and failures while a compaction runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.db import DatabaseError, connection

from engine.formats.ranges.model import Entry, Row
from engine.lanes.catalog.files import CatalogFiles
from engine.lanes.catalog.plan.branch import BranchUpdate, Refusal
from engine.storage import StorageError
from tests.webadmin.lanes.catalog.order_steps import (
    BEGIN_BUILD,
    MARK,
    ROWS,
    Compactor,
    every_order,
    with_committed,
)
from tests.webadmin.lanes.catalog.short import CONTEXT, SAID, Catalog, value
from tests.webadmin.lanes.catalog.stepping import Stepped
from webadmin.base.database.dialect import clock_ms
from webadmin.lanes.catalog.errors import (
    CommitRefused,
    FilesCondemned,
)
from webadmin.lanes.catalog.lane_models import CompactionPolicy
from webadmin.lanes.catalog.models import (
    Branch,
    Build,
    CondemnedFile,
    Repository,
)
from webadmin.lanes.catalog.places import catalog_store, files_of, folder_of
from webadmin.lanes.catalog.reachable import read_roots
from webadmin.lanes.catalog.services import commit_branch as committing_module
from webadmin.lanes.catalog.services.garbage.collect_garbage import collect_garbage
from webadmin.lanes.catalog.services.garbage.sweep_rows import sweep_builds, sweep_repository, sweep_retired_rows
from webadmin.lanes.catalog.services.move_heads import import_entries
from webadmin.lanes.catalog.services.protection import write_protection
from webadmin.lanes.catalog.services.repositories import begin_removal, delete_repository
from webadmin.lanes.catalog.services.reset_branch import reset_branch
from webadmin.lanes.catalog.services.staged_rows import ROWS_AT_FIRST, base_of, metarange_of_commit
from webadmin.lanes.catalog.services.write_objects import put_entries


def order_31_garbage_is_listed_while_a_fold_is_published(catalog: Catalog) -> None:
    catalog.puts(k="x")
    compactor = Compactor(catalog).seal().build()
    asked = {"now_ms": clock_ms(), "retention_days": 0, "has_objects": True}
    listing = Stepped(lambda: read_roots(catalog.repository, **asked), ROWS)
    compactor.run()
    roots = listing.end()
    assert "x" in roots.staged or catalog.record().snapshot in roots.keeping_objects


def collect_everything(catalog: Catalog) -> None:
    """Collect garbage, as if everything were old and no grace were given."""
    policy = {"grace_seconds": 0}
    CompactionPolicy.objects.update_or_create(repository=catalog.repository, defaults=policy)
    store = catalog_store()
    for info in store.list(folder_of(catalog.repository)):
        os.utime(Path(store.url.removeprefix("file://")) / info.key, (0, 0))
    collect_garbage(catalog.repository, has_objects=False)


def check_files(catalog: Catalog) -> None:
    """Every file below the branch is there, whatever this process remembers of it."""
    files = files_of(catalog.repository)
    for info in files.read_metarange(base_of(catalog.repository, catalog.record())).ranges:
        files.verify(info)


def with_condemned(catalog: Catalog) -> Compactor:
    """A build of files that lay about unreached, and are on the list."""
    catalog.puts(k="x")
    Compactor(catalog).run()
    reset_branch(catalog.repository, "main", context=CONTEXT)
    collect_everything(catalog)
    assert CondemnedFile.objects.filter(repository_id=catalog.repository.pk).count() == 2
    catalog.puts(k="x")
    return Compactor(catalog).seal().build()


def order_32_what_was_to_be_deleted_is_published_first(catalog: Catalog) -> None:
    compactor = with_condemned(catalog)
    collecting = Stepped(lambda: collect_everything(catalog), MARK)
    compactor.run()
    collecting.end()
    check_files(catalog)
    assert catalog.visible() == {"k": "x"}


def order_32b_what_is_being_deleted_is_not_published_and_built_again(catalog: Catalog) -> None:
    compactor = with_condemned(catalog)
    collecting = Stepped(lambda: collect_everything(catalog), MARK)
    collecting.to(MARK)  # it has marked and deleted them, and has not said so
    with pytest.raises(FilesCondemned):
        compactor.publish_anyhow()
    collecting.end()
    compactor.end()
    CondemnedFile.objects.update(deleted_ms=1)  # what is begun in the same millisecond would be refused
    Compactor(catalog).run()
    check_files(catalog)
    assert catalog.visible() == {"k": "x"}


def order_33_the_repository_is_deleted_during_a_compaction(catalog: Catalog) -> None:
    catalog.puts(k="x")
    compactor = Compactor(catalog).seal().build()
    folder, name = folder_of(catalog.repository), catalog.repository.name
    delete_repository(catalog.repository, context=CONTEXT)
    assert compactor.publish() is Refusal.GONE
    Repository.objects.filter(name=name).update(deleted_ms=0)
    assert begin_removal(catalog.repository)
    sweep_repository(catalog.repository)
    assert list(catalog_store().list(folder)) == []
    assert not Repository.objects.filter(name=name).exists()


def order_34_the_branch_is_protected_and_the_repository_read_only_during_a_compaction(catalog: Catalog) -> None:
    catalog.puts(k="x")
    compactor = Compactor(catalog).seal().build()
    write_protection(catalog.repository, [{"pattern": "*"}], context=CONTEXT)
    Repository.objects.filter(pk=catalog.repository.pk).update(is_read_only=True)
    compactor.run()  # none is begun by itself any more; what is under way changes nothing that is seen
    assert (catalog.visible(), catalog.diff()) == ({"k": "x"}, [("added", "k")])
    assert catalog.record().snapshot


def order_35_a_compactor_dies_behind_its_publication(catalog: Catalog) -> None:
    catalog.puts(k="x")
    compactor = Compactor(catalog).seal().build()
    assert isinstance(compactor.publish_anyhow(), BranchUpdate)
    assert sweep_retired_rows() == 0  # it may be reading them
    Build.objects.filter(repository_id=catalog.repository.pk).update(heartbeat_ms=0)
    assert (sweep_builds(), sweep_retired_rows()) == (1, 1)
    assert catalog.visible() == {"k": "x"}


def order_36_a_compactor_dies_before_its_build(catalog: Catalog) -> None:
    catalog.puts(k="x")
    Compactor(catalog).seal()
    catalog.put("l", "x")
    Compactor(catalog).run()
    assert (catalog.record().sealed, catalog.visible()) == ((), {"k": "x", "l": "x"})


def order_37_a_commit_that_fails_behind_its_seal_leaves_what_is_folded(catalog: Catalog) -> None:
    catalog.puts(k="x")
    refused = patch.object(committing_module, "make_commit", side_effect=CommitRefused("a hook says no"))
    with refused, pytest.raises(CommitRefused):
        catalog.commit()
    assert (len(catalog.record().sealed), catalog.diff()) == (1, [("added", "k")])
    Compactor(catalog).run()
    assert (catalog.record().sealed, catalog.diff(), catalog.committed()) == ((), [("added", "k")], {})


def order_38_the_store_takes_no_file_of_a_build(catalog: Catalog) -> None:
    catalog.puts(k="x")
    compactor = Compactor(catalog).seal()
    before = catalog.record()
    away = StorageError("put", "ranges/x", "the store is away")
    with patch.object(CatalogFiles, "put", side_effect=away), pytest.raises(StorageError):
        compactor.build()
    assert (catalog.record(), catalog.visible()) == (before, {"k": "x"})
    compactor.run()
    assert catalog.visible() == {"k": "x"}


def order_39_the_database_fails_in_the_middle_of_a_sealed_token(catalog: Catalog) -> None:
    entries = [Entry(b"%04d" % number, b"i", value("x").to_payload()) for number in range(ROWS_AT_FIRST + 10)]
    put_entries(catalog.repository, "main", entries)
    compactor = Compactor(catalog).seal()
    before = catalog.record()
    reads: list[str] = []

    def fail(execute: Callable[..., Any], sql: str, *told: Any) -> Any:
        if ROWS in sql:
            reads.append(sql)
            if len(reads) == 2:
                raise DatabaseError("the connection is gone")
        return execute(sql, *told)

    with connection.execute_wrapper(fail), pytest.raises(DatabaseError):
        compactor.build()
    assert len(reads) == 2
    assert catalog.record() == before
    compactor.run()
    assert len(catalog.visible()) == len(entries)


def order_40_an_import_over_a_snapshot_that_equals_the_commit(catalog: Catalog) -> None:
    with_committed(catalog, a="x")
    equal = metarange_of_commit(catalog.repository, catalog.record().head)
    Branch.objects.filter(pk=int(catalog.record().uid)).update(snapshot=equal)

    @contextmanager
    def rows() -> Iterator[Iterator[Row]]:
        yield iter([(b"i/k", value("x").identity, value("x").to_payload())])

    importing = Stepped(
        lambda: import_entries(catalog.repository, "main", [b"i/"], rows, SAID, context=CONTEXT), BEGIN_BUILD
    )
    Compactor(catalog).run()
    importing.end()
    assert (catalog.committed(), catalog.record().snapshot) == ({"a": "x", "i/k": "x"}, None)


ORDERS = [each for name, each in globals().items() if name.startswith("order_")]


def test_every_order_with_garbage_deaths_and_failures_ends_as_it_must(real_catalog: Catalog) -> None:
    every_order(ORDERS)
