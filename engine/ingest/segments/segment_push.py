"""The message between a distributor and a segment writer: profiles of one tenant for one shard.

The distributor has validated every profile; the writer parses it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from engine.core.errors import BadObject, LimitExceeded
from engine.core.fast_dataclasses import fast_init
from engine.formats.profile_block.container.object_names import check_tenant
from engine.formats.profile_block.model import Labels
from engine.formats.proto import segment_push_pb2
from engine.ingest.segments.label_memory import remembered

SERIES_MAX = 100_000
"""Maximum profiles of a message; a distributor sends those of one push."""
LABELS_MAX = 256
"""Maximum labels of a profile; above all limits for pushes."""
_SECTION = "segment push"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class PushedSeries:
    """One profile: series labels, an uncompressed pprof message, and its arrival time (unix nanoseconds)."""

    labels: Labels
    pprof: bytes
    received_at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPush:
    """Profiles of one tenant for one shard (1 and up), in arrival order."""

    tenant: str
    shard: int
    series: tuple[PushedSeries, ...]


def encode_segment_push(tenant: str, shard: int, series: Sequence[PushedSeries]) -> bytes:
    """Return the message's bytes."""
    message = segment_push_pb2.SegmentPush(tenant=tenant, shard=shard)
    for one in series:
        message.series.add(profile=one.pprof, received_at_ns=one.received_at_ns, labels=_encoded(one.labels))
    return message.SerializeToString()


def decode_segment_push(data: bytes) -> SegmentPush:
    """Decode a message. Raises BadObject or LimitExceeded if it is invalid, BadBlockName for an invalid tenant."""
    message = segment_push_pb2.SegmentPush()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadObject(_SECTION, 0, f"not a protobuf message: {error}") from error
    check_tenant(message.tenant)
    if message.shard == 0:
        raise BadObject(_SECTION, -1, "the message names no shard; shards count from 1")
    if len(message.series) > SERIES_MAX:
        raise LimitExceeded(_SECTION, -1, f"{len(message.series)} profiles in one message, the limit is {SERIES_MAX}")
    try:
        series = tuple(map(_series, message.series))
    except DecodeError as error:
        raise BadObject(_SECTION, -1, f"a label is not a protobuf message: {error}") from error
    return SegmentPush(tenant=message.tenant, shard=message.shard, series=series)


@remembered
def _encoded(labels: Labels) -> tuple[bytes, ...]:
    return tuple(segment_push_pb2.PushedLabel(name=name, value=value).SerializeToString() for name, value in labels)


@remembered
def _decoded(encoded: tuple[tuple[bytes], ...]) -> Labels:
    found = [segment_push_pb2.PushedLabel.FromString(one) for (one,) in encoded]
    return tuple((label.name, label.value) for label in found)


def _series(message: segment_push_pb2.PushedSeries) -> PushedSeries:
    if len(message.labels) > LABELS_MAX:
        raise LimitExceeded(_SECTION, -1, f"a profile with {len(message.labels)} labels, the limit is {LABELS_MAX}")
    if message.received_at_ns <= 0:
        raise BadObject(_SECTION, -1, "a profile without the time it was received")
    labels = _decoded(tuple(zip(message.labels, strict=True)))
    return PushedSeries(labels=labels, pprof=message.profile, received_at_ns=message.received_at_ns)
