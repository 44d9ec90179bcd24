"""The message from a distributor to a writer: what goes in comes out, and anything else is refused by name."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import BadBlockName, BadObject, LimitExceeded
from engine.ingest.segments.segment_push import LABELS_MAX, PushedSeries, decode_segment_push, encode_segment_push

series = st.builds(
    PushedSeries,
    labels=st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=4).map(tuple),
    pprof=st.binary(max_size=64),
    received_at_ns=st.integers(1, 2**62),
)


@given(st.lists(series, max_size=4), st.integers(1, 2**32 - 1))
def test_what_a_distributor_sends_is_what_a_writer_gets(sent: list[PushedSeries], shard: int) -> None:
    push = decode_segment_push(encode_segment_push("acme", shard, sent))
    assert (push.tenant, push.shard, list(push.series)) == ("acme", shard, sent)


@given(st.binary(max_size=200))
def test_hostile_bytes_are_refused_or_decoded(data: bytes) -> None:
    with contextlib.suppress(BadObject, BadBlockName):
        assert decode_segment_push(data).shard > 0


def test_a_push_without_shard_time_or_good_tenant_is_refused() -> None:
    good = PushedSeries(labels=(("service_name", "web"),), pprof=b"", received_at_ns=1)
    with pytest.raises(BadObject, match="names no shard"):
        decode_segment_push(encode_segment_push("acme", 0, [good]))
    with pytest.raises(BadBlockName):
        decode_segment_push(encode_segment_push("../acme", 1, [good]))
    timeless = PushedSeries(labels=good.labels, pprof=b"", received_at_ns=0)
    with pytest.raises(BadObject, match="without the time"):
        decode_segment_push(encode_segment_push("acme", 1, [timeless]))


def test_more_labels_than_any_limit_allows_are_refused() -> None:
    labels = tuple((f"label{number}", "") for number in range(LABELS_MAX + 1))
    crowded = PushedSeries(labels=labels, pprof=b"", received_at_ns=1)
    with pytest.raises(LimitExceeded, match="257 labels"):
        decode_segment_push(encode_segment_push("acme", 1, [crowded]))
