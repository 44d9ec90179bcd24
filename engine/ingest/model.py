"""Types shared by the decoders of pushes: the pushed profile, its limits, and the rejection.

Defaults and reasons: ``docs/reference/formats/profile-api.md``, "Labels" and "Profile checks".
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.errors import LithifyError
from engine.core.fast_dataclasses import fast_init
from engine.formats.pprof.pprof import parse_profile
from engine.formats.pprof.pprof_model import Profile
from engine.formats.profile_block.model import Labels

NANOSECONDS_PER_SECOND = 1_000_000_000


class Refused(LithifyError):
    """A push, or one of its profiles, is rejected; ``reason`` is a stable code for metrics, ``message`` is text.

    ``label`` is the name of the label that caused it, if any. ``work_bytes`` are the uncompressed bytes that a request
    came to before it was rejected as a whole.
    """

    code = "push_refused"
    work_bytes = 0

    def __init__(self, reason: str, message: str, *, label: str = "") -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message
        self.label = label

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class PushLimits:
    """Limits of one tenant. Sizes are bytes of uncompressed pprof, times are nanoseconds."""

    body_bytes_max: int = 256 << 20
    profile_bytes_max: int = 4 << 20
    samples_max: int = 16_000
    sample_labels_max: int = 100
    stack_frames_max: int = 1_000
    symbol_bytes_max: int = 65_535
    labels_max: int = 30
    label_name_bytes_max: int = 1_024
    label_value_bytes_max: int = 2_048
    sessions_max: int = 0
    older_than_now_max_ns: int = 3_600 * NANOSECONDS_PER_SECOND
    newer_than_now_max_ns: int = 600 * NANOSECONDS_PER_SECOND


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class PushedProfile:
    """A validated profile of a push: its series labels (sorted, with ``service_name``) and its content.

    ``pprof`` is the uncompressed message for the writer. ``notes`` describes repairs (a dropped label, a truncated
    stack).
    """

    labels: Labels
    pprof: bytes
    notes: tuple[str, ...] = ()

    @property
    def profile(self) -> Profile:
        """Return the content, parsed at every call; a distributor forwards the bytes and does not need it."""
        return parse_profile(self.pprof)
