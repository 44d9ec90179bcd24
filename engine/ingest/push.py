"""Decode ``push.v1.PusherService/Push`` requests to validated profiles, each series independently.

Source: ``docs/reference/formats/profile-api.md``, "Push". Valid series are kept if others are rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from engine.core.errors import BadObject, LimitExceeded
from engine.formats.pprof.pprof import UnpackBudget, parse_profile, uncompressed
from engine.formats.pprof.pprof_encode import encode_profile
from engine.formats.pprof.pprof_model import Profile
from engine.formats.proto import push_pb2
from engine.ingest.labels import CheckedLabels, check_labels
from engine.ingest.message_bounds import check_json, check_message
from engine.ingest.model import PushedProfile, PushLimits, Refused
from engine.ingest.profile_checks import MALFORMED, check_profile
from engine.ingest.segments.push_screen import is_in_order

Content = TypeVar("Content")

SERIES_MAX = 10_000
"""Maximum series of a request; profilers send a few."""
PROFILE_SIZE = "profile_size_limit"
_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class DecodedPush:
    """The accepted profiles of a push, and the rejections of others.

    ``work_bytes`` are the uncompressed bytes of all profiles that were decompressed, accepted or not.
    """

    profiles: tuple[PushedProfile, ...]
    refused: tuple[Refused, ...]
    work_bytes: int = 0


def decode_push(body: bytes, *, is_json: bool, limits: PushLimits, now_ns: int) -> DecodedPush:
    """Decode and validate a PushRequest (protobuf or its JSON form). Raises Refused if the request is invalid.

    ``now_ns`` is unix nanoseconds; profiles without a time get it when they are written.
    """
    request = _request(body, is_json=is_json)
    if len(request.series) > SERIES_MAX:
        raise Refused(MALFORMED, f"{len(request.series)} series in one request, the limit is {SERIES_MAX}")
    if not any(series.samples for series in request.series):
        raise Refused("no_profiles", "no profiles received")
    taken: list[PushedProfile] = []
    refused: list[Refused] = []
    budget = UnpackBudget()
    for series in request.series:
        try:
            taken.extend(_series(series, limits, budget, now_ns))
        except Refused as error:
            refused.append(error)
    return DecodedPush(tuple(taken), tuple(refused), budget.unpacked_bytes)


def _request(body: bytes, *, is_json: bool) -> push_pb2.PushRequest:
    request = push_pb2.PushRequest()
    try:
        if is_json:
            check_json(body)
            json_format.Parse(body, request, ignore_unknown_fields=True, max_recursion_depth=32)
        else:
            check_message(body, request.DESCRIPTOR, first_max=SERIES_MAX)
            request.ParseFromString(body)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("malformed_request", f"the body is not a push.v1.PushRequest: {error}") from error
    return request


def _series(
    series: push_pb2.RawProfileSeries, limits: PushLimits, budget: UnpackBudget, now_ns: int
) -> list[PushedProfile]:
    if not series.samples:
        raise Refused("no_profiles", "a series has no profiles")
    labels = check_labels(((label.name, label.value) for label in series.labels), limits)
    found = []
    for sample in series.samples:
        _check_body_limit(limits, budget)
        found.append(checked_pprof(sample.raw_profile, labels, limits, now_ns=now_ns, budget=budget))
        _check_body_limit(limits, budget)
    return found


def _check_body_limit(limits: PushLimits, budget: UnpackBudget) -> None:
    """Reject profiles after the limit too, without decompressing them. Raises Refused."""
    if budget.unpacked_bytes > limits.body_bytes_max:
        message = f"uncompressed batched profile payload size exceeds limit of {limits.body_bytes_max} bytes"
        raise Refused(PROFILE_SIZE, message)


def checked_pprof(
    data: bytes, labels: CheckedLabels, limits: PushLimits, *, now_ns: int, budget: UnpackBudget | None = None
) -> PushedProfile:
    """Decompress, parse and validate one pprof profile. Raises Refused with what to change in the sender."""
    message = _read(data, limits, partial(uncompressed, budget=budget))
    if _is_in_order(message, limits, now_ns):
        return PushedProfile(labels=labels.labels, pprof=message, notes=labels.notes)
    profile = _read(message, limits, parse_profile)
    return checked_profile(profile, message, labels, limits, now_ns=now_ns)


def _is_in_order(message: bytes, limits: PushLimits, now_ns: int) -> bool:
    """Return whether ``check_profile`` would certainly return the profile unchanged."""
    return is_in_order(
        message,
        oldest_ns=max(now_ns - limits.older_than_now_max_ns, -_INT64_MAX),
        newest_ns=min(now_ns + limits.newer_than_now_max_ns, _INT64_MAX),
        samples_max=limits.samples_max,
        sample_labels_max=limits.sample_labels_max,
        stack_frames_max=limits.stack_frames_max,
        symbol_bytes_max=limits.symbol_bytes_max,
    )


def parsed_pprof(data: bytes, limits: PushLimits, budget: UnpackBudget) -> tuple[Profile, bytes]:
    """Return the parsed profile and its uncompressed message. Raises Refused if it is too large or not pprof."""
    message = _read(data, limits, partial(uncompressed, budget=budget))
    return _read(message, limits, parse_profile), message


def _read(data: bytes, limits: PushLimits, read: Callable[..., Content]) -> Content:
    """Decompress or parse within the limits."""
    try:
        return read(data, size_max=limits.profile_bytes_max)
    except LimitExceeded as error:
        text = f"uncompressed profile payload size exceeds limit of {limits.profile_bytes_max} bytes: {error}"
        raise Refused(PROFILE_SIZE, text) from error
    except BadObject as error:
        raise Refused(MALFORMED, str(error)) from error


def checked_profile(
    profile: Profile, message: bytes | None, labels: CheckedLabels, limits: PushLimits, *, now_ns: int
) -> PushedProfile:
    """Validate a parsed profile; ``message`` is its encoded form, None if it was changed or created here."""
    checked, notes = check_profile(profile, limits, now_ns=now_ns)
    pprof = message if message is not None and checked is profile else encode_profile(checked, compress=False)
    return PushedProfile(labels=labels.labels, pprof=pprof, notes=(*labels.notes, *notes))
