"""What the decoders of pushes share: a pushed profile, the limits it is held to, and how it is refused.

Defaults and reasons: profile API format sheet, sections 2.2 and 2.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.errors import LithifyError
from engine.core.quick_values import quickly_built
from engine.formats.pprof.pprof import parse_profile
from engine.formats.pprof.pprof_model import Profile
from engine.formats.profile_block.model import Labels

NANOSECONDS_PER_SECOND = 1_000_000_000


class Refused(LithifyError):
    """A push, or one profile of it, is not taken; ``reason`` is a stable code that is counted, ``message`` for people.

    ``label`` names the label it is about, if it is about one. ``work_bytes`` are the uncompressed bytes that a request
    came to before it was refused as a whole.
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
    """What one tenant may send. Sizes in bytes of uncompressed pprof, times in nanoseconds."""

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


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class PushedProfile:
    """One checked profile of a push: its series labels (sorted, with ``service_name``) and its content.

    ``pprof`` is an uncompressed message, which is what a writer gets. ``notes`` says in words what was changed to make
    it acceptable (a label dropped, a stack cut).
    """

    labels: Labels
    pprof: bytes
    notes: tuple[str, ...] = ()

    @property
    def profile(self) -> Profile:
        """The content, parsed anew at every call: a distributor passes the bytes on and never looks at it."""
        return parse_profile(self.pprof)
