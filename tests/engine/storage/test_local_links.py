"""A tenant that writes below a folder itself gets nothing from outside of it: no link is followed, no FIFO waited for.

``outside`` is a folder beside the store with a secret in it; every test tries one way to it.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.storage import InvalidKey, ObjectInfo, ObjectNotFound, ObjectStore, StorageError, nofollow, open_store
from engine.storage.local import LocalStore
from engine.storage.nofollow import READ, opened_folders

SECRET = b"the secret"
READS: dict[str, Callable[[ObjectStore, str], object]] = {
    "get": lambda store, key: store.get(key),
    "get_range": lambda store, key: store.get_range(key, 0, 1),
    "head": lambda store, key: store.head(key),
}
WRITES: dict[str, Callable[[ObjectStore, str], object]] = {
    "put": lambda store, key: store.put(key, b"new"),
    "create": lambda store, key: store.create(key, b"new"),
    "open_writer": lambda store, key: _write(store, key),
}


def _write(store: ObjectStore, key: str) -> ObjectInfo:
    with store.open_writer(key) as writer:
        writer.write(b"new")
        return writer.commit()


def _walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nofollow, "_syscall", None)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(SECRET)
    return folder


@pytest.fixture(params=["openat2", "walk"])
def store(tmp_path: Path, outside: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    """A store with one object and links of every kind, on a kernel with the system call and on one without."""
    if request.param == "walk":
        _walk(monkeypatch)
    store = LocalStore(tmp_path / "store")
    store.put("folder/object", b"x")
    (store.root / "link").symlink_to(outside / "secret")
    (store.root / "linked").symlink_to(outside)
    (store.root / "folder" / "linked").symlink_to("../../outside")
    (store.root / "inner").symlink_to("folder")
    return store


@pytest.mark.parametrize("key", ["link", "linked/secret", "folder/linked/secret", "inner/object"])
@pytest.mark.parametrize("operation", READS)
def test_no_read_follows_a_link(store: LocalStore, operation: str, key: str) -> None:
    with pytest.raises(ObjectNotFound, match="symbolic link"):
        READS[operation](store, key)


@pytest.mark.parametrize("key", ["linked/new", "folder/linked/new", "inner/new", "linked/deep/new"])
@pytest.mark.parametrize("operation", WRITES)
def test_no_write_goes_through_a_linked_folder(store: LocalStore, outside: Path, operation: str, key: str) -> None:
    with pytest.raises(InvalidKey, match="symbolic link"):
        WRITES[operation](store, key)
    assert os.listdir(outside) == ["secret"]
    assert sorted(os.listdir(store.root / "folder")) == ["linked", "object"]
    assert store.sweep_unfinished(before=2**40) == 0


def test_a_write_replaces_a_link_and_leaves_what_it_led_to(store: LocalStore, outside: Path) -> None:
    store.put("link", b"new")
    assert (store.get("link"), (outside / "secret").read_bytes()) == (b"new", SECRET)


def test_a_create_finds_the_key_of_a_link_taken(store: LocalStore, outside: Path) -> None:
    assert not store.create("link", b"new")
    assert (outside / "secret").read_bytes() == SECRET


@pytest.mark.parametrize("key", ["link", "linked/secret", "folder/linked/secret"])
def test_a_delete_removes_neither_a_link_nor_what_it_leads_to(store: LocalStore, outside: Path, key: str) -> None:
    store.delete(key)
    assert (outside / "secret").read_bytes() == SECRET
    assert (store.root / "link").is_symlink()


def test_listings_leave_links_and_special_files_out_and_count_them(store: LocalStore) -> None:
    os.mkfifo(store.root / "fifo")
    assert [info.key for info in store.list()] == ["folder/object"]
    assert store.usage.skipped() == 5  # link, linked, inner, folder/linked and the FIFO
    assert list(store.list_folders()) == ["folder/"]
    assert [info.key for info in store.list("linked/")] == []
    assert list(store.list_folders("linked/")) == []


def test_a_name_that_becomes_a_link_after_the_folder_was_read_is_left_out(
    store: LocalStore, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = store._names

    def read_then_replace(folder: str) -> object:
        found = names(folder)
        if folder == "folder/":
            (store.root / "folder" / "object").unlink()
            (store.root / "folder" / "object").symlink_to(outside / "secret")
        return found

    monkeypatch.setattr(store, "_names", read_then_replace)
    assert list(store.list()) == []


@pytest.mark.timeout(10)
@pytest.mark.parametrize("operation", READS)
def test_a_fifo_is_no_object_and_does_not_block(store: LocalStore, operation: str) -> None:
    os.mkfifo(store.root / "fifo")
    with pytest.raises(ObjectNotFound, match="only regular files"):
        READS[operation](store, "fifo")
    store.delete("fifo")
    assert (store.root / "fifo").is_fifo()


@pytest.mark.timeout(10)
def test_a_file_that_becomes_a_fifo_before_it_is_opened_is_no_object(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _walk(monkeypatch)
    status = os.stat

    def look_then_replace(name: str, **options: object) -> os.stat_result:
        found = status(name, **options)  # type: ignore[arg-type]
        if name == "object":
            (store.root / "folder" / "object").unlink()
            os.mkfifo(store.root / "folder" / "object")
        return found

    monkeypatch.setattr(os, "stat", look_then_replace)
    with pytest.raises(ObjectNotFound, match="only regular files"):
        store.get("folder/object")


def test_a_socket_is_no_object(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(store.root)  # the name of a socket may have 107 characters only
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with pytest.raises(ObjectNotFound, match="only regular files"):
            store.get("socket")


def test_the_folder_of_unfinished_files_may_be_no_link(store: LocalStore, outside: Path) -> None:
    (store.root / ".lithify-unfinished").rmdir()
    (store.root / ".lithify-unfinished").symlink_to(outside)
    with pytest.raises(StorageError, match="symbolic link"):
        store.put("a", b"x")
    with pytest.raises(StorageError, match="symbolic link"):
        store.sweep_unfinished(before=2**40)
    assert (outside / "secret").read_bytes() == SECRET


def test_what_is_no_file_among_unfinished_files_keeps_none_of_them(store: LocalStore) -> None:
    folder = store.root / ".lithify-unfinished"
    for name in ("1-folder", "9-folder"):
        (folder / name).mkdir()
    (folder / "5-file").write_bytes(b"x")
    assert store.sweep_unfinished(before=2**40) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["1-folder", "9-folder"]


def test_the_folder_of_a_store_below_the_root_of_all_can_be_synced(tmp_path: Path) -> None:
    with opened_folders(tmp_path.parts[1:2], 3, READ) as folders:
        assert len(folders) == 2
        for folder in folders:
            os.fsync(folder)


def test_an_unfinished_file_that_became_a_link_is_published_as_a_link(store: LocalStore, outside: Path) -> None:
    """A hard link to what it leads to would be an object with the bytes of a file outside."""
    for replaces in (True, False):
        name, file = store.create_unfinished("put", "a")
        file.close()
        unfinished = store.root / ".lithify-unfinished" / name
        unfinished.unlink()
        unfinished.symlink_to(outside / "secret")
        store.publish("put", f"published-{replaces}", name, replaces=replaces)
        assert (store.root / f"published-{replaces}").is_symlink()


@pytest.mark.parametrize("operation", [*READS, *WRITES, "list", "list_folders", "delete"])
def test_a_link_to_the_store_is_an_error_of_every_operation(store: LocalStore, tmp_path: Path, operation: str) -> None:
    """Not an empty store: what is missing may be deleted from an index."""
    (tmp_path / "elsewhere").symlink_to(tmp_path)
    others: dict[str, Callable[[ObjectStore, str], object]] = {
        "list": lambda store, _key: list(store.list()),
        "list_folders": lambda store, _key: list(store.list_folders()),
        "delete": lambda store, key: store.delete(key),
    }
    through = open_store((tmp_path / "elsewhere" / "store").as_uri())
    with pytest.raises(StorageError, match="path of the store's folder, 'elsewhere' is a symbolic link") as caught:
        (READS | WRITES | others)[operation](through, "folder/object")
    assert not isinstance(caught.value, ObjectNotFound)
    assert store.get("folder/object") == b"x"


def test_no_descriptor_stays_open(store: LocalStore, tmp_path: Path) -> None:
    # Only those below this folder: threads of other tests open and close their own meanwhile.
    before = open_below(tmp_path)
    for operation in (*READS.values(), *WRITES.values()):
        for key in ("folder/object", "link", "linked/secret", "folder/missing", "folder"):
            with contextlib.suppress(StorageError):
                operation(store, key)
    list(store.list())
    assert open_below(tmp_path) == before


def open_below(folder: Path) -> list[str]:
    """Return what is open of a folder, once for each descriptor."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(path for path in found if path.startswith(str(folder)))


def test_the_system_call_is_there() -> None:
    """Else the tests above try the walk twice."""
    assert nofollow.open_path(("tmp",), nofollow.SEARCH) != nofollow.NO_DESCRIPTOR
