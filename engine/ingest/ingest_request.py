"""Decode a request to ``/ingest``: detect its format and return its profiles.

The first matching row of the table decides (``docs/reference/formats/profile-api.md``, "Formats"). The web layer
unpacks forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.formats.pprof.pprof import UnpackBudget
from engine.ingest.application_names import ApplicationName, parse_application_name
from engine.ingest.labels import check_labels
from engine.ingest.model import PushedProfile, PushLimits, Refused
from engine.ingest.pprof_push import pushed_pprof
from engine.ingest.push import PROFILE_SIZE, checked_profile
from engine.ingest.speedscope import parse_speedscope
from engine.ingest.text_profiles import RATE_DEFAULT, text_profile
from engine.ingest.text_stacks import StackCounts, parse_folded, parse_lines, parse_tree, parse_trie

FORM_TYPE = "multipart/form-data"
SPY_DEFAULT = "unknown"
UNSUPPORTED = "unsupported_format"
_OCTETS = "binary/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRequest:
    """A request: query parameters, body, and the file parts of a form by name.

    ``from_ns`` is unix nanoseconds, ``rate`` samples per second.
    """

    name: str
    from_ns: int
    body: bytes = b""
    parts: Mapping[str, bytes] = field(default_factory=dict)
    format: str = ""
    content_type: str = ""
    spy: str = SPY_DEFAULT
    rate: int = RATE_DEFAULT


def rate_of(text: str) -> int:
    """Return ``sampleRate`` as an integer, or the default if it is negative or not a number; 0 stays 0."""
    try:
        rate = int(text)
    except ValueError:
        return RATE_DEFAULT
    return rate if 0 <= rate <= 10**9 else RATE_DEFAULT


def decode_ingest(request: IngestRequest, limits: PushLimits, *, now_ns: int) -> list[PushedProfile]:
    """Return the validated profiles of a request.

    Raises Refused with ``bad_name``, ``unknown_profile_type``, ``unsupported_format`` or a reason of a pprof push.
    """
    application = parse_application_name(request.name)
    kind = _kind(request)
    if kind == "jfr":
        message = "JFR recordings are not read here; send pprof (format=pprof) or let Grafana Alloy convert them"
        raise Refused(UNSUPPORTED, message)
    if kind == "pprof":
        return _pprof(request, application, request.body, b"", limits, now_ns)
    if kind == "form":
        return _form(request, application, limits, now_ns)
    if len(request.body) > limits.profile_bytes_max:
        message = (
            f"the profile has {len(request.body)} bytes, which exceeds maximum allowed size {limits.profile_bytes_max}"
        )
        raise Refused(PROFILE_SIZE, message)
    if kind == "speedscope":
        return _speedscope(request, application, limits, now_ns)
    stacks = _stacks(kind, request.body, limits)
    return _text(request, application, stacks, request.rate, limits, now_ns)


def _kind(request: IngestRequest) -> str:
    for kind in ("trie", "tree"):
        if request.format == kind or request.content_type == f"{_OCTETS}+{kind}":
            return kind
    if request.format in {"lines", "jfr", "pprof", "speedscope"}:
        return request.format
    return "form" if FORM_TYPE in request.content_type else "folded"


def _stacks(kind: str, body: bytes, limits: PushLimits) -> StackCounts:
    if kind == "tree":
        return parse_tree(body, name_bytes_max=limits.symbol_bytes_max, children_max=limits.samples_max)
    return {"trie": parse_trie, "lines": parse_lines, "folded": parse_folded}[kind](body)


def _form(request: IngestRequest, application: ApplicationName, limits: PushLimits, now_ns: int) -> list[PushedProfile]:
    if "jfr" in request.parts:
        raise Refused(UNSUPPORTED, "JFR recordings are not read here; send pprof instead")
    if request.parts.get("prev_profile"):
        message = "unsupported client version: it sends cumulative profiles with the one before; update the Go SDK"
        raise Refused(UNSUPPORTED, message)
    data = request.parts.get("profile", b"")
    return _pprof(request, application, data, request.parts.get("sample_type_config", b""), limits, now_ns)


def _pprof(
    request: IngestRequest,
    application: ApplicationName,
    data: bytes,
    config: bytes,
    limits: PushLimits,
    now_ns: int,
) -> list[PushedProfile]:
    if not data:
        return []
    budget = UnpackBudget()
    try:
        pushed = pushed_pprof(
            application,
            data,
            config=config,
            spy=request.spy,
            from_ns=request.from_ns,
            limits=limits,
            now_ns=now_ns,
            budget=budget,
        )
    except Refused as error:
        error.work_bytes = budget.unpacked_bytes
        raise
    return [pushed]


def _speedscope(
    request: IngestRequest, application: ApplicationName, limits: PushLimits, now_ns: int
) -> list[PushedProfile]:
    profiles = parse_speedscope(request.body)
    found: list[PushedProfile] = []
    for profile in profiles:
        name = application.name if len(profiles) == 1 else f"{application.name}.{profile.unit}"
        tags = application.tags | ({"profile_name": profile.name} if profile.name else {})
        rate = profile.rate if request.rate == RATE_DEFAULT else request.rate
        found.extend(_text(request, ApplicationName(name, tags), profile.stacks, rate, limits, now_ns))
    return found


def _text(
    request: IngestRequest,
    application: ApplicationName,
    stacks: StackCounts,
    rate: int,
    limits: PushLimits,
    now_ns: int,
) -> list[PushedProfile]:
    made = text_profile(application, stacks, spy=request.spy, rate=rate, time_ns=request.from_ns)
    if made is None or not stacks:
        return []
    return [checked_profile(made.profile, None, check_labels(made.labels, limits), limits, now_ns=now_ns)]


def bytes_of(profiles: Iterable[PushedProfile]) -> int:
    """Return the bytes that a rate limit counts: uncompressed profiles and labels."""
    return sum(
        len(profile.pprof) + sum(len(name) + len(value) for name, value in profile.labels) for profile in profiles
    )
