"""An object that nothing reached is linked again, on a connection of its own, while a round is about to delete it."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from django.db import connection

from engine.formats.ranges.object_entry import ObjectEntry
from engine.storage import StorageError
from engine.storage.local import LocalStore
from tests.processes import wait_until
from tests.webadmin.lanes.catalog.api.conftest import Caller
from tests.webadmin.lanes.catalog.order_steps import is_waited_for_a_lock
from tests.webadmin.lanes.catalog.short import CONTEXT, SAID, Catalog, new_catalog
from tests.webadmin.lanes.catalog.stepping import Stepped
from webadmin.lanes.catalog.models import Commit, CondemnedObject
from webadmin.lanes.catalog.places import catalog_store, data_prefix_of, folder_of
from webadmin.lanes.catalog.services import branches
from webadmin.lanes.catalog.services.branches import create_branch, delete_branch
from webadmin.lanes.catalog.services.compaction.change_compaction import change_policy
from webadmin.lanes.catalog.services.garbage.collect_garbage import collect_garbage
from webadmin.lanes.catalog.services.garbage.sweep_rows import sweep_retired_rows
from webadmin.lanes.catalog.services.move_heads import cherry_pick, hard_reset, revert_commit
from webadmin.lanes.catalog.services.tags import create_tag
from webadmin.lanes.catalog.services.write_objects import delete_entry, put_entry

LISTED = 'FROM "catalog_condemnedobject"'
"""What a round reads when it has read the roots, before it marks anything."""
COUNTED = 'UPDATE "catalog_repository"'
"""How a link is counted."""

Link = Callable[[Catalog, str, str], object]
"""Links the state of a commit in which the object is; the last is the next commit, which deletes it."""

LINKS: dict[str, Link] = {
    "branch": lambda catalog, first, _: create_branch(catalog.repository, "again", first, context=CONTEXT),
    "tag": lambda catalog, first, _: create_tag(catalog.repository, "kept", first, context=CONTEXT),
    "reset": lambda catalog, first, _: hard_reset(catalog.repository, "main", first, context=CONTEXT),
    "merge": lambda catalog, first, _: catalog.merge(first),
    "cherry-pick": lambda catalog, first, _: cherry_pick(catalog.repository, "main", first, None, context=CONTEXT),
    "revert": lambda catalog, _, second: revert_commit(catalog.repository, "main", second, SAID, context=CONTEXT),
    "retention": lambda catalog, *_: change_policy(catalog.repository, {"retention_days": 0}, context=CONTEXT),
    "copy": lambda catalog, first, _: copied(catalog, first),
}


def copied(catalog: Catalog, source: str, caller: str = "ann") -> int:
    """Copy the object over HTTP; return the status."""
    path = f"repositories/{catalog.repository.name}/branches/main/objects/copy?dest_path=b"
    return int(Caller(caller).send("POST", path, {"src_path": "a", "src_ref": source}).status_code)


def expired(catalog: Catalog) -> tuple[str, str]:
    """Two commits beyond what is kept of history, the second of which deletes the object of the first."""
    create_branch(catalog.repository, "work", "main", context=CONTEXT)
    catalog_store().put(data_prefix_of(catalog.repository) + "o", b"bytes")
    value = ObjectEntry(address="data/o", size=5, checksum="o", written_at=0.0)
    put_entry(catalog.repository, "work", b"a", value)
    first = catalog.commit("work")
    delete_entry(catalog.repository, "work", b"a")
    second = catalog.commit("work")
    delete_branch(catalog.repository, "work", context=CONTEXT)
    Commit.objects.filter(repository=catalog.repository).update(created_ms=0)
    change_policy(catalog.repository, {"retention_days": 1, "grace_seconds": 60}, context=CONTEXT)
    for info in catalog_store().list(data_prefix_of(catalog.repository)):
        os.utime(Path(catalog_store().url.removeprefix("file://")) / info.key, (0, 0))
    return first.commit_id, second.commit_id


def condemned(catalog: Catalog) -> tuple[str, str]:
    """The same; the object is on the list, and has been for long."""
    commits = expired(catalog)
    sweep_retired_rows()
    done = collect_garbage(catalog.repository)
    assert (done.objects_condemned, done.objects_deleted) == (1, 0)
    CondemnedObject.objects.filter(repository_id=catalog.repository.pk).update(since_ms=0)
    return commits


def is_there(catalog: Catalog) -> bool:
    keys = {info.key for info in catalog_store().list(folder_of(catalog.repository) + "data/")}
    return keys == {folder_of(catalog.repository) + "data/o"}


def linked_in_between(catalog: Catalog, link: Link) -> bool:
    """Link the object when a round has read the roots; say whether its bytes are still there at the end."""
    commits = condemned(catalog)
    collecting = Stepped(lambda: collect_garbage(catalog.repository), LISTED)
    link(catalog, *commits)
    assert collecting.end().objects_deleted == (0 if is_there(catalog) else 1)
    return is_there(catalog)


def test_without_a_link_it_is_deleted(real_catalog: Catalog) -> None:
    assert not linked_in_between(real_catalog, lambda *_: None)
    assert not CondemnedObject.objects.exists()


@pytest.mark.parametrize("name", LINKS)
def test_it_stays_if_it_is_linked_between_the_roots_and_the_mark(real_catalog: Catalog, name: str) -> None:
    assert linked_in_between(real_catalog, LINKS[name])
    CondemnedObject.objects.update(since_ms=0)
    done = collect_garbage(real_catalog.repository)
    assert (done.objects_deleted, CondemnedObject.objects.count()) == (0, 0), "it is taken off the list"
    assert is_there(real_catalog)


def test_what_is_not_counted_is_lost(real_catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the tests above show what they are to show."""
    monkeypatch.setattr(branches, "count_link", lambda repository_id: None)
    assert not linked_in_between(real_catalog, LINKS["branch"])


def test_a_link_that_is_not_committed_yet_is_waited_for(real_catalog: Catalog) -> None:
    first, _ = condemned(real_catalog)
    linking = Stepped(partial(create_tag, real_catalog.repository, "kept", first, context=CONTEXT), COUNTED)
    linking.to('INSERT INTO "access_auditentry"')
    with ThreadPoolExecutor(1) as pool:
        collecting = pool.submit(in_thread, lambda: collect_garbage(real_catalog.repository))
        if connection.vendor == "postgresql":
            wait_until(lambda: collecting.done() or is_waited_for_a_lock(), "it waits for the link", 60)
        linking.end()
        assert collecting.result().objects_deleted == 0
    assert is_there(real_catalog)


def test_only_what_is_linked_stays(real_catalog: Catalog) -> None:
    """A link of something else delays nothing: the roots are read again in the same round."""
    other = new_catalog(name="other")
    assert not linked_in_between(other, lambda catalog, *_: catalog.branch("again", "main"))


def test_what_is_being_deleted_is_not_copied(real_catalog: Catalog) -> None:
    first, _ = condemned(real_catalog)
    CondemnedObject.objects.update(is_marked=True)
    assert copied(real_catalog, first) == 410
    assert collect_garbage(real_catalog.repository).objects_deleted == 1
    assert copied(real_catalog, first, "bob") == 410
    assert real_catalog.visible() == {}


def test_a_deletion_that_was_cut_short_is_done_again_whatever_names_the_object(real_catalog: Catalog) -> None:
    first, _ = condemned(real_catalog)
    away = StorageError("delete", "data/o", "the store is away")
    with patch.object(LocalStore, "delete", side_effect=away):
        done = collect_garbage(real_catalog.repository)
    assert (done.objects_deleted, done.failed, CondemnedObject.objects.get().is_marked) == (0, 1, True)
    real_catalog.branch("again", first)
    assert collect_garbage(real_catalog.repository).objects_deleted == 1
    assert not CondemnedObject.objects.exists()


def in_thread(action: Callable[[], object]) -> object:
    try:
        return action()
    finally:
        connection.close()
