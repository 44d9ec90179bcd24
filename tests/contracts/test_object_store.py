"""What every object store promises, on a folder and on S3 over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.storage import (
    ConditionalCreate,
    InvalidKey,
    InvalidRange,
    ObjectNotFound,
    ObjectStore,
    StorageError,
    open_store,
)
from engine.storage.conformance import check_store
from engine.storage.s3 import PART_SIZE

BAD_KEYS = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/../b",
    "../outside",
    "a/./b",
    "a\0b",
    "a\nb",
    "a\\b",
    "\ud800",
    "x" * 256,
    "/".join(["x" * 200] * 6),
    ".lithify-unfinished/x",
]


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    if request.param == "s3":
        yield request.getfixturevalue("s3_store")
    else:
        yield open_store((tmp_path / "store").as_uri())


def keys(store: ObjectStore, prefix: str = "", **options: str) -> list[str]:
    return [info.key for info in store.list(prefix, **options)]


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 300])
def test_what_was_put_comes_back(store: ObjectStore, data: bytes) -> None:
    info = store.put("blocks/0/tenant/block.bin", data)
    assert (info.key, info.size) == ("blocks/0/tenant/block.bin", len(data))
    assert store.get("blocks/0/tenant/block.bin") == data


def test_a_put_replaces_the_object(store: ObjectStore) -> None:
    store.put("a", b"long first content")
    store.put("a", b"second")
    assert store.get("a") == b"second"
    assert keys(store) == ["a"]


def test_head_returns_size_and_modification_time(store: ObjectStore) -> None:
    put = store.put("a/b", b"12345")
    head = store.head("a/b")
    assert (head.key, head.size) == ("a/b", 5)
    assert abs(head.modified_at - put.modified_at) < 5


@pytest.mark.parametrize("operation", ["get", "head", "get_range"])
def test_a_missing_object_is_named(store: ObjectStore, operation: str) -> None:
    arguments = (0, 1) if operation == "get_range" else ()
    store.put("a/b", b"x")
    for key in ("a/c", "a", "c/d"):
        with pytest.raises(ObjectNotFound) as caught:
            getattr(store, operation)(key, *arguments)
        assert caught.value.key == key
        assert not caught.value.retryable


@pytest.mark.parametrize(("offset", "length"), [(0, 10), (0, 1), (9, 1), (3, 4), (0, 0), (10, 0)])
def test_a_range_is_exact(store: ObjectStore, offset: int, length: int) -> None:
    store.put("a", b"0123456789")
    assert store.get_range("a", offset, length) == b"0123456789"[offset : offset + length]


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 11), (9, 2), (10, 1), (50, 1), (11, 0), (-1, 2), (2, -1), (0, 1 << 60), (1 << 62, 1)]
)
def test_a_range_beyond_the_object_is_refused(store: ObjectStore, offset: int, length: int) -> None:
    store.put("a", b"0123456789")
    with pytest.raises(InvalidRange):
        store.get_range("a", offset, length)


@pytest.mark.parametrize("key", BAD_KEYS)
def test_a_bad_key_is_refused_by_every_operation(store: ObjectStore, key: str) -> None:
    for operation in (
        lambda: store.get(key),
        lambda: store.get_range(key, 0, 1),
        lambda: store.head(key),
        lambda: store.put(key, b"x"),
        lambda: store.create(key, b"x"),
        lambda: store.open_writer(key),
        lambda: store.delete(key),
    ):
        with pytest.raises(InvalidKey):
            operation()
    assert keys(store) == []


@pytest.mark.parametrize("key", ["ä/ö", "a b", "a+b=c&d?e#f%20", "...", "a.b..c", "x" * 255, "日本"])
def test_unusual_keys_are_kept_as_they_are(store: ObjectStore, key: str) -> None:
    store.put(key, b"x")
    assert store.get(key) == b"x"
    assert keys(store) == [key]
    store.delete(key)
    assert keys(store) == []


def test_a_listing_is_in_bytewise_order_of_whole_keys(store: ObjectStore) -> None:
    names = ["a/x", "a-b", "a0", "b/c/d", "b/c-d", "é", "z", "B"]
    for name in names:
        store.put(name, b"")
    assert keys(store) == sorted(names, key=str.encode)


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("", ["a/1", "a/2", "ab", "b/1"]),
        ("a", ["a/1", "a/2", "ab"]),
        ("a/", ["a/1", "a/2"]),
        ("c", []),
        ("a/2", ["a/2"]),
    ],
)
def test_a_listing_keeps_to_its_prefix(store: ObjectStore, prefix: str, expected: list[str]) -> None:
    for name in ("a/1", "a/2", "ab", "b/1"):
        store.put(name, b"")
    assert keys(store, prefix) == expected


def test_a_listing_starts_after_a_given_key(store: ObjectStore) -> None:
    for name in ("a/1", "a/2", "a/3", "b"):
        store.put(name, b"")
    assert keys(store, start_after="a/2") == ["a/3", "b"]
    assert keys(store, "a/", start_after="a/15") == ["a/2", "a/3"]
    assert keys(store, start_after="c") == []


def test_a_listing_of_more_than_one_page_is_whole(store: ObjectStore) -> None:
    names = [f"many/{number:04d}" for number in range(1005)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(name, b""), names))
    assert keys(store, "many/") == names


@pytest.mark.parametrize(
    ("prefix", "expected"), [("", ["a/", "a-b/", "é/"]), ("a/", ["a/b/"]), ("a/b/", ["a/b/d/"]), ("c/", [])]
)
def test_folders_of_a_level_are_listed_once_each_without_their_contents(
    store: ObjectStore, prefix: str, expected: list[str]
) -> None:
    for name in ("a/b/c", "a/b/d/e", "a/x", "a-b/c", "z", "é/x"):
        store.put(name, b"")
    assert list(store.list_folders(prefix)) == sorted(expected, key=str.encode)


def test_folders_beyond_one_page_are_all_listed(store: ObjectStore) -> None:
    names = [f"many/{number:04d}/" for number in range(1005)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(name + "x", b""), names))
    assert list(store.list_folders("many/")) == names


@pytest.mark.parametrize("prefix", ["a", "../", "/", "a//"])
def test_a_level_prefix_that_is_not_a_folder_is_rejected(store: ObjectStore, prefix: str) -> None:
    with pytest.raises(InvalidKey):
        list(store.list_folders(prefix))


def test_a_listing_returns_sizes_and_modification_times(store: ObjectStore) -> None:
    store.put("a", b"123")
    (info,) = store.list()
    assert (info.key, info.size) == ("a", 3)
    assert info.modified_at > 1_600_000_000


def test_a_deleted_object_is_gone_and_deleting_again_is_harmless(store: ObjectStore) -> None:
    store.put("a/b/c", b"x")
    store.put("a/d", b"x")
    store.delete("a/b/c")
    store.delete("a/b/c")
    store.delete("never/written")
    assert keys(store) == ["a/d"]
    store.put("a/b", b"a key that was a folder before")
    assert keys(store) == ["a/b", "a/d"]


def test_create_takes_a_free_key_once(store: ObjectStore) -> None:
    assert store.create("a/b", b"first")
    assert not store.create("a/b", b"second")
    assert store.get("a/b") == b"first"


def test_conditional_create_is_probed_and_leaves_nothing(store: ObjectStore) -> None:
    assert store.probe_conditional_create() is ConditionalCreate.ENFORCED
    assert keys(store) == []


@pytest.mark.parametrize("size", [0, 1, PART_SIZE - 1, PART_SIZE, PART_SIZE + 1, 2 * PART_SIZE + 17])
def test_a_stream_comes_back_whole(store: ObjectStore, size: int) -> None:
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    with store.open_writer("stream") as writer:
        for start in range(0, size, 3_000_017):
            writer.write(memoryview(data)[start : start + 3_000_017])
    assert store.get("stream") == data
    assert store.head("stream").size == size


@pytest.mark.parametrize("size", [10, PART_SIZE + 10])
def test_a_stream_is_invisible_until_its_commit_returns(store: ObjectStore, size: int) -> None:
    writer = store.open_writer("stream")
    writer.write(bytes(size))
    assert keys(store) == []
    info = writer.commit()
    assert (info.key, info.size) == ("stream", size)
    assert writer.commit() == info
    assert keys(store) == ["stream"]


@pytest.mark.parametrize("size", [10, PART_SIZE + 10])
def test_an_error_inside_the_stream_leaves_the_old_object(store: ObjectStore, size: int) -> None:
    store.put("stream", b"old")

    def fail_midway() -> None:
        with store.open_writer("stream") as writer:
            writer.write(bytes(size))
            raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        fail_midway()
    assert store.get("stream") == b"old"
    assert store.sweep_unfinished(before=2**40) == 0


def test_an_aborted_writer_takes_nothing_more(store: ObjectStore) -> None:
    writer = store.open_writer("stream")
    writer.write(b"x")
    writer.abort()
    writer.abort()
    with pytest.raises(StorageError, match="already"):
        writer.write(b"y")
    with pytest.raises(StorageError, match="already"):
        writer.commit()
    assert keys(store) == []


def test_unfinished_writes_are_swept_by_age(store: ObjectStore) -> None:
    writer = store.open_writer("stream")
    writer.write(bytes(PART_SIZE + 1))
    assert store.sweep_unfinished(before=0) == 0
    assert store.sweep_unfinished(before=2**40) == 1
    with pytest.raises(StorageError):
        writer.commit()
    assert keys(store) == []


def test_requests_and_bytes_are_counted_per_operation(store: ObjectStore) -> None:
    store.put("a", b"12345")
    store.get("a")
    store.get_range("a", 1, 2)
    store.head("a")
    list(store.list())
    store.delete("a")
    assert store.usage.requests() == {"put": 1, "get": 1, "get_range": 1, "head": 1, "list": 1, "delete": 1}
    assert {name: count for name, count in store.usage.bytes().items() if count} == {"put": 5, "get": 5, "get_range": 2}


def test_threads_share_a_store(store: ObjectStore) -> None:
    barrier = threading.Barrier(8)

    def use(number: int) -> bytes:
        barrier.wait(timeout=30)
        # All in one folder, which deletions remove and writers make again.
        store.put(f"shared/{number}", b"%d" % number)
        data = store.get(f"shared/{number}")
        store.delete(f"shared/{number}")
        return data

    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            assert list(pool.map(use, range(8))) == [b"%d" % number for number in range(8)]
    assert keys(store) == []


def test_the_conformance_check_passes_and_leaves_nothing(store: ObjectStore) -> None:
    report = check_store(store)
    assert [result for result in report.results if result.fault] == []
    assert report.is_conforming
    assert report.conditional_create is ConditionalCreate.ENFORCED
    assert keys(store) == []


part = st.text("abc-.0é", min_size=1, max_size=3).filter(lambda text: text not in (".", ".."))


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(contents=st.dictionaries(st.lists(part, min_size=1, max_size=3).map("/".join), st.binary(max_size=9)))
def test_a_store_is_a_sorted_dictionary(store: ObjectStore, contents: dict[str, bytes]) -> None:
    for info in list(store.list()):
        store.delete(info.key)
    model: dict[str, bytes] = {}
    for key, data in contents.items():
        if not any(other.startswith(key + "/") or key.startswith(other + "/") for other in model):
            store.put(key, data)
            model[key] = data
    assert {key: store.get(key) for key in keys(store)} == model
    assert keys(store) == sorted(model, key=str.encode)
