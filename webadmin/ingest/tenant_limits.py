"""Push limits: their names, defaults and permitted values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from engine.core.errors import LithifyError
from engine.ingest.model import NANOSECONDS_PER_SECOND, PushLimits

ALL_TENANTS = ""


class PushLimitRefused(LithifyError):
    """The value is not permitted for this push limit; the message gives the permitted values."""

    code = "push_limit_refused"


class PushLimitName(enum.StrEnum):
    """Names of the limits. Byte limits are for uncompressed pprof."""

    BYTES_PER_SECOND = "bytes_per_second"
    BURST_BYTES = "burst_bytes"
    SERIES_MAX = "series_max"
    BODY_BYTES_MAX = "body_bytes_max"
    PROFILE_BYTES_MAX = "profile_bytes_max"
    SAMPLES_MAX = "samples_max"
    SAMPLE_LABELS_MAX = "sample_labels_max"
    STACK_FRAMES_MAX = "stack_frames_max"
    SYMBOL_BYTES_MAX = "symbol_bytes_max"
    LABELS_MAX = "labels_max"
    LABEL_NAME_BYTES_MAX = "label_name_bytes_max"
    LABEL_VALUE_BYTES_MAX = "label_value_bytes_max"
    SESSIONS_MAX = "sessions_max"
    OLDER_THAN_NOW_SECONDS = "older_than_now_seconds"
    NEWER_THAN_NOW_SECONDS = "newer_than_now_seconds"


HIGHEST = {
    PushLimitName.BYTES_PER_SECOND: 1 << 40,
    PushLimitName.BURST_BYTES: 1 << 40,
    PushLimitName.SERIES_MAX: 1_000_000,
    PushLimitName.BODY_BYTES_MAX: 256 << 20,
    PushLimitName.PROFILE_BYTES_MAX: 64 << 20,
    PushLimitName.SAMPLES_MAX: 1_000_000,
    PushLimitName.SAMPLE_LABELS_MAX: 1_000,
    PushLimitName.STACK_FRAMES_MAX: 10_000,
    PushLimitName.SYMBOL_BYTES_MAX: 65_535,
    # A segment push has at most 256 labels per profile, including those that are added.
    PushLimitName.LABELS_MAX: 200,
    PushLimitName.LABEL_NAME_BYTES_MAX: 4_096,
    PushLimitName.LABEL_VALUE_BYTES_MAX: 65_535,
    PushLimitName.SESSIONS_MAX: 10_000,
    PushLimitName.OLDER_THAN_NOW_SECONDS: 30 * 86_400,
    PushLimitName.NEWER_THAN_NOW_SECONDS: 86_400,
}
"""Maximum permitted values."""
_IN_SECONDS = {
    PushLimitName.OLDER_THAN_NOW_SECONDS: "older_than_now_max_ns",
    PushLimitName.NEWER_THAN_NOW_SECONDS: "newer_than_now_max_ns",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPushLimits:
    """All limits of one tenant. A profile larger than ``burst_bytes`` is always rejected."""

    bytes_per_second: int = 4 << 20
    burst_bytes: int = 16 << 20
    series_max: int = 5_000
    profile: PushLimits = field(default_factory=lambda: PushLimits(body_bytes_max=64 << 20))

    def value(self, name: PushLimitName) -> int:
        """Return one limit as it is set: an integer in the unit that its name gives."""
        if name in _IN_SECONDS:
            return int(getattr(self.profile, _IN_SECONDS[name])) // NANOSECONDS_PER_SECOND
        return int(getattr(self if hasattr(self, name.value) else self.profile, name.value))


DEFAULTS = TenantPushLimits()


def check_push_limit(name: PushLimitName, value: int | None) -> None:
    """Raise PushLimitRefused unless the value is permitted; None, which removes a limit, always is."""
    if value is not None and not 0 <= value <= HIGHEST[name]:
        raise PushLimitRefused(f"{name} {value}: give 0 to {HIGHEST[name]}")


def limits_of(own: Mapping[str, int], of_all_tenants: Mapping[str, int]) -> TenantPushLimits:
    """Return the limits in force from those set for the tenant and for all tenants, by name."""
    values = {name: DEFAULTS.value(name) for name in PushLimitName}
    values |= {PushLimitName(name): value for name, value in {**of_all_tenants, **own}.items()}
    known = {spec.name for spec in fields(PushLimits)}
    inner: dict[str, int] = {name.value: value for name, value in values.items() if name.value in known}
    inner |= {column: values[name] * NANOSECONDS_PER_SECOND for name, column in _IN_SECONDS.items()}
    return TenantPushLimits(
        bytes_per_second=values[PushLimitName.BYTES_PER_SECOND],
        burst_bytes=values[PushLimitName.BURST_BYTES],
        series_max=values[PushLimitName.SERIES_MAX],
        profile=PushLimits(**inner),
    )
