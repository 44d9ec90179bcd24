"""Which stores are the same, lie within one another, or are apart."""

from __future__ import annotations

import pytest

from engine.storage import InvalidStoreUrl
from engine.storage.locations import ALL_BUCKETS, locate_store

HERE = "?endpoint=http://here:9000"


@pytest.fixture(autouse=True)
def _no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OBJECT_STORE_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("file:///a", "file:///a"),
        ("file:///a/", "/a/b"),
        ("file:///a%20b", "file:///a b/c"),
        ("file:///a", "file:///x/../a/b"),
        ("file://localhost/a", "file:///a/b"),
        ("file:///", "file:///a"),
        ("s3://bucket", "s3://bucket/prefix"),
        ("s3://bucket/prefix/", "s3://bucket/prefix?region=eu-west-1"),
        (f"s3://bucket/a{HERE}", f"s3://bucket/a/b{HERE}/"),
        ("s3://bucket?endpoint=https://HERE", "s3://bucket/x?endpoint=https://here:443"),
        ("s3://bucket", "s3://bucket/x?endpoint=https://s3.eu-west-1.amazonaws.com"),
        (ALL_BUCKETS, f"s3://bucket/a{HERE}"),
    ],
)
def test_a_store_lies_within_another(outer: str, inner: str) -> None:
    assert locate_store(outer).contains(locate_store(inner))
    assert locate_store(inner).overlaps(locate_store(outer))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:///a/b", "file:///a/bc"),
        ("s3://bucket/a", "s3://bucket/ab"),
        ("s3://bucket", "s3://bucket-2"),
        ("s3://bucket", f"s3://bucket{HERE}"),
        (f"s3://bucket{HERE}", "s3://bucket?endpoint=http://here:9001"),
        ("file:///bucket", "s3://bucket"),
        ("file:///", ALL_BUCKETS),
    ],
)
def test_stores_are_apart(one: str, other: str) -> None:
    assert not locate_store(one).overlaps(locate_store(other))


def test_the_endpoint_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://here:9000")
    assert locate_store("s3://bucket").contains(locate_store(f"s3://bucket/a{HERE}"))


def test_what_is_no_store_has_no_place() -> None:
    with pytest.raises(InvalidStoreUrl):
        locate_store("http://bucket")
