"""meta.json: what is kept, what is ignored, and what is refused in words."""

from __future__ import annotations

import json

import pytest

from engine.core.errors import BadObject, LimitExceeded, UnknownFormat
from engine.formats.prometheus.meta import (
    META_BYTES_MAX,
    BlockMeta,
    BlockStats,
    Compaction,
    ParentBlock,
    decode_meta,
    encode_meta,
)
from tests.engine.lanes.tsdb.factories import ULID, meta_document


def encoded(**changes: object) -> bytes:
    return json.dumps(meta_document(**changes)).encode()


def test_everything_that_is_known_is_kept() -> None:
    meta = BlockMeta(
        ulid=ULID,
        min_time_ms=-5,
        max_time_ms=7,
        stats=BlockStats(1, 2, 3, 4, 5, 6),
        compaction=Compaction(3, (ULID,), (ParentBlock(ULID, -5, 7),), True, True, ("from-out-of-order",)),
        thanos={"labels": {"replica": "ä"}, "extensions": {"free": [1, None, 2.5]}},
    )
    assert decode_meta(encode_meta(meta)) == meta


def test_statistics_are_there_even_if_empty_and_zeros_are_left_out() -> None:
    meta = BlockMeta(ULID, 0, 1, BlockStats(), Compaction(1))
    expected = {"ulid": ULID, "minTime": 0, "maxTime": 1, "stats": {}, "compaction": {"level": 1}, "version": 1}
    assert json.loads(encode_meta(meta)) == expected


def test_keys_that_are_not_known_are_ignored() -> None:
    assert decode_meta(encoded(later="x")) == decode_meta(encoded())


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"version": None},
        {"ulid": "../../etc"},
        {"ulid": 5},
        {"minTime": "1"},
        {"minTime": 1.0},
        {"minTime": True},
        {"minTime": 1 << 63},
        {"minTime": 2000},
        {"stats": []},
        {"stats": {"numSamples": -1}},
        {"stats": {"numChunks": 1 << 64}},
        {"compaction": None},
        {"compaction": {}},
        {"compaction": {"level": 1, "sources": "x"}},
        {"compaction": {"level": 1, "sources": ["x"]}},
        {"compaction": {"level": 1, "parents": [{}]}},
        {"compaction": {"level": 1, "parents": [3]}},
        {"compaction": {"level": 1, "deletable": 1}},
        {"compaction": {"level": 1, "hints": [1]}},
        {"thanos": "x"},
        {"thanos": {"labels": {"a": "\ud800"}}},
    ],
    ids=str,
)
def test_what_is_not_as_promised_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadObject) as refused:
        decode_meta(encoded(**changes))
    assert refused.value.section == "meta.json"


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b"\xff", b"null", b"[" * 100_000, b'{"version": NaN}', b'{"version": ' + b"1" * 10_000 + b"}"],
)
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(BadObject):
        decode_meta(data)


def test_another_version_is_named_and_a_huge_document_is_not_parsed() -> None:
    with pytest.raises(UnknownFormat, match="version 2"):
        decode_meta(encoded(version=2))
    with pytest.raises(LimitExceeded):
        decode_meta(b" " * (META_BYTES_MAX + 1))
