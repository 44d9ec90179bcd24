"""What only the folder promises: the order of syncs and renames, and no way out of the folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.storage import InvalidKey, StorageError
from engine.storage.local import LocalStore


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The syncs and moves that happen, in order; a descriptor is named by what it points to."""
    seen: list[str] = []
    fsync = os.fsync

    def record_fsync(descriptor: int) -> None:
        seen.append("sync " + Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def recorded(move: Callable[..., None]) -> Callable[..., None]:
        return lambda *names, **options: (seen.append("move"), move(*names, **options))[1]

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", recorded(os.replace))
    monkeypatch.setattr(os, "link", recorded(os.link))
    return seen


@pytest.mark.parametrize("operation", ["put", "create"])
def test_the_file_is_synced_before_it_gets_its_name_and_the_folders_after(
    tmp_path: Path, calls: list[str], operation: str
) -> None:
    store = LocalStore(tmp_path / "store")
    getattr(store, operation)("a/b", b"x")
    unfinished = calls[1]
    assert len(unfinished) == len("sync ") + 32
    # The first sync is of the folder that now holds the new store.
    assert calls == [f"sync {tmp_path.name}", unfinished, "move", "sync a", "sync store"]


def test_a_full_disk_is_a_storage_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="put 'a': No space left on device"):
        store.put("a", b"new")
    assert store.get("a") == b"old"
    assert store.sweep_unfinished(before=2**40) == 0


def test_a_key_cannot_be_a_folder_of_other_keys(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("a/b", b"x")
    with pytest.raises(InvalidKey, match="another key"):
        store.put("a", b"y")
    with pytest.raises(InvalidKey, match="another key"):
        store.put("a/b/c", b"z")
    assert [info.key for info in store.list()] == ["a/b"]


def test_a_deletion_leaves_no_empty_folders(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    store.put("a/b/c", b"x")
    store.delete("a/b/c")
    assert not (tmp_path / "store" / "a").exists()
    assert (tmp_path / "store").is_dir()


def test_a_folder_that_vanishes_while_it_is_made_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Making it finds it there, and a deletion prunes it before anybody looks what it is."""
    store = LocalStore(tmp_path / "store")
    make = os.mkdir
    found: list[str] = []

    def there_and_gone(path: str, mode: int = 0o777, **kwargs: object) -> None:
        if path == "shared" and not found:
            found.append(path)
            raise FileExistsError(errno.EEXIST, "it was there", os.fspath(path))
        make(path, mode, **kwargs)

    monkeypatch.setattr(os, "mkdir", there_and_gone)
    store.put("shared/1", b"one")
    assert found
    assert store.get("shared/1") == b"one"
