"""Small pprof profiles as senders make them."""

from __future__ import annotations

from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_encode import encode_profile

NOW_NS = 1_800_000_000 * 10**9


def make_pprof(*stacks: tuple[str, ...], age_s: float = 1, labels: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Return an uncompressed CPU profile of ``stacks`` (leaf first) that begins ``age_s`` before now."""
    builder = ProfileBuilder([("cpu", "nanoseconds")], period_type=("cpu", "nanoseconds"), period=10**7)
    for stack in stacks or (("leaf", "root"),):
        builder.add([Frame(name, "app.py", 1, 2) for name in stack], [10**7], labels)
    return encode_profile(builder.profile(time_ns=NOW_NS - int(age_s * 10**9), duration_ns=10**9), compress=False)
