"""URLs of object stores: which are accepted, and the errors for the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.storage import InvalidStoreUrl, is_local, open_store, resolve_links
from engine.storage.local import LocalStore
from engine.storage.s3 import S3Location, S3Store


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OBJECT_STORE_ENDPOINT",
        "AWS_ENDPOINT_URL_S3",
        "AWS_ENDPOINT_URL",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
    ):
        monkeypatch.delenv(name, raising=False)


def location(url: str) -> S3Location:
    store = open_store(url)
    assert isinstance(store, S3Store)
    assert store.url == url
    store.close()
    return store.location


def test_a_folder_may_be_a_url_or_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    for url in (str(folder), folder.as_uri()):
        store = open_store(url)
        assert isinstance(store, LocalStore)
        assert store.root == folder
        assert is_local(url)
    assert open_store(store.url).url == store.url


def test_opening_a_folder_writes_nothing(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "new"))
    assert list(store.list()) == []
    assert list(tmp_path.iterdir()) == []


def test_a_bucket_has_prefix_endpoint_and_region() -> None:
    url = "s3://some-bucket/a/b/?endpoint=http://127.0.0.1:9000&region=eu-west-1"
    assert location(url) == S3Location(
        bucket="some-bucket", prefix="a/b/", endpoint="http://127.0.0.1:9000", region="eu-west-1"
    )
    assert location("s3://some-bucket") == S3Location(bucket="some-bucket")
    assert not is_local("s3://some-bucket")


@pytest.mark.slow
def test_the_environment_fills_what_the_url_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert location("s3://b") == S3Location(bucket="b", endpoint="http://127.0.0.1:1", region="us-west-2")
    monkeypatch.setenv("OBJECT_STORE_ENDPOINT", "http://127.0.0.1:2")
    assert location("s3://b").endpoint == "http://127.0.0.1:2"
    assert location("s3://b?endpoint=http://127.0.0.1:3").endpoint == "http://127.0.0.1:3"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "s3://",
        "s3:///prefix",
        "http://bucket/x",
        "gs://bucket",
        "file://elsewhere/folder",
        "file://",
        "file:///x?y=1",
        "s3://bucket/a//b",
        "s3://bucket/a/../b",
        "s3://key:secret@bucket",
        "s3://bucket?endpont=http://127.0.0.1:1",
    ],
)
def test_a_url_that_cannot_be_used_is_explained(url: str) -> None:
    with pytest.raises(InvalidStoreUrl, match=r"use file:///folder|invalid prefix"):
        open_store(url)


def test_links_of_a_setting_are_resolved_once_and_other_urls_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to("disk")
    assert resolve_links((tmp_path / "data" / "objects").as_uri()) == (tmp_path / "disk" / "objects").as_uri()
    for url in (f"file://{tmp_path}/with space", str(tmp_path / "new"), "s3://bucket/prefix?endpoint=http://here"):
        assert resolve_links(url) == url
