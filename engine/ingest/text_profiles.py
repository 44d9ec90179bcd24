"""Profiles from stacks with names and counts only; the last part of the application name determines the type.

Table and labels: ``docs/reference/formats/profile-api.md``, "Text profiles". Scaled types count samples taken ``rate``
times per second: every count is one period in nanoseconds.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_model import Profile
from engine.formats.profile_block.model import Labels
from engine.ingest.application_names import ApplicationName
from engine.ingest.model import NANOSECONDS_PER_SECOND, Refused
from engine.ingest.text_stacks import INT64_MAX, StackCounts

SESSION_LABEL = "__session_id__"
SERVICE_NAME = "service_name"
RATE_DEFAULT = 100


class TextType(NamedTuple):
    """The type for a suffix of the application name: metric, sample type, and whether counts are scaled."""

    metric: str
    sample_type: str
    unit: str
    is_scaled: bool = False


_CPU = TextType("process_cpu", "cpu", "nanoseconds", is_scaled=True)
_WALL = TextType("wall", "wall", "nanoseconds", is_scaled=True)
_TYPES = (
    dict.fromkeys(("cpu", "itimer"), _CPU)
    | dict.fromkeys(("wall", "seconds", "milliseconds", "microseconds", "nanoseconds"), _WALL)
    | {name: TextType("memory", name, "count") for name in ("inuse_objects", "alloc_objects", "live")}
    | {name: TextType("memory", name, "bytes") for name in ("inuse_space", "alloc_space")}
    | {
        f"alloc_{where}_tlab_objects": TextType("memory", f"alloc_{where}_tlab_objects", "count")
        for where in ("in_new", "outside")
    }
    | {
        f"alloc_{where}_tlab_bytes": TextType("memory", f"alloc_{where}_tlab_bytes", "bytes")
        for where in ("in_new", "outside")
    }
    | {
        "bytes": TextType("memory", "samples", "bytes"),
        "goroutines": TextType("goroutine", "goroutines", "count"),
        "mutex_count": TextType("mutex", "contentions", "count"),
        "mutex_duration": TextType("mutex", "delay", "nanoseconds"),
        "exceptions": TextType("exceptions", "samples", "count"),
    }
    | dict.fromkeys(("block_count", "lock_count"), TextType("block", "contentions", "count"))
    | dict.fromkeys(("block_duration", "lock_duration"), TextType("block", "delay", "nanoseconds"))
)


class TextProfile(NamedTuple):
    """A profile converted from text, and the labels of its series."""

    labels: Labels
    profile: Profile


def text_profile(
    application: ApplicationName, stacks: StackCounts, *, spy: str, rate: int, time_ns: int
) -> TextProfile | None:
    """Return the profile of these stacks; None for a push that is accepted and dropped (tag ``profile_id``).

    ``rate`` is samples per second, ``time_ns`` the start (unix nanoseconds). Raises Refused for an unknown type or a
    scaled value above 63 bits.
    """
    if application.tags.get("profile_id"):
        return None
    app, text_type = _type_of(application.name)
    period = NANOSECONDS_PER_SECOND // rate if text_type.is_scaled and rate else 0
    sample_type, unit = text_type.sample_type, text_type.unit
    if text_type.is_scaled and not rate:
        sample_type, unit = "samples", "count"
    builder = ProfileBuilder(
        [(sample_type, unit)], period_type=("cpu", "nanoseconds") if period else ("", ""), period=period
    )
    for stack, count in stacks.items():
        value = count * (period or 1)
        if value > INT64_MAX:
            raise Refused("malformed_profile", f"a count of {count} at {rate} a second leaves 63 bits of nanoseconds")
        frames = [Frame(name.decode("utf-8", "replace"), "", 0, 0) for name in reversed(stack)]
        builder.add(frames, [value])
    profile = builder.profile(time_ns=time_ns, duration_ns=0)
    return TextProfile(push_labels(application, app, text_type.metric, spy), profile)


def push_labels(application: ApplicationName, app: str, metric: str, spy: str) -> Labels:
    """Return the sorted labels of a push to ``/ingest``; drop tags that start with ``__`` except the session id."""
    tags = {
        name: value for name, value in application.tags.items() if not name.startswith("__") or name == SESSION_LABEL
    }
    if SERVICE_NAME in tags:
        tags.setdefault("app_name", app)
    tags.setdefault(SERVICE_NAME, app)
    return tuple(sorted({**tags, "__name__": metric, "__delta__": "false", "pyroscope_spy": spy}.items()))


def _type_of(name: str) -> tuple[str, TextType]:
    app, dot, suffix = name.rpartition(".")
    if not dot:
        return name, _CPU
    if not app:
        raise Refused("bad_name", f"name: {name!r} names a type and no application")
    known = _TYPES.get(suffix)
    if known is None:
        raise Refused("unknown_profile_type", f"unknown profile type: {suffix!r}, the last part of {name!r}")
    return app, known
