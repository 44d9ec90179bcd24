"""How decisions say their reasons: the sentences, by cause."""

from __future__ import annotations

from engine.core.time_texts import moment

HOT = "hot"
EXCLUDED = "excluded"
UNBOUNDED = "unbounded"
TIED = "tied"
SET_ASIDE = "set-aside"
BUSY = "busy"
NOTHING = "nothing"
TOMBSTONES = "tombstones"
CONVERGED = "converged"
SINGLE = "single"
IDEAL = "ideal"
MISALIGNED = "misaligned"
MISALIGNED_ZONE = "misaligned-zone"
TOO_MANY = "too-many"
OVERSIZE = "oversize"
OVERFULL = "overfull"
ALIGNED = "aligned"

GRANULARITY_CHANGED = "the granularity is another now"
POLICY_CHANGED = "the policy is another now"
HIDDEN_IN_PART = "newer data hides a part of a segment that it shares"

CHUNK = {
    HOT: "it is among the newest, which the hot window leaves alone",
    EXCLUDED: "it is excluded: {detail}",
    UNBOUNDED: "it is unbounded: {detail} touches too many chunks to be cut by them",
    TIED: "it shares a segment with a chunk that is left alone, and files are rewritten whole: {detail}",
    SET_ASIDE: "it waits: {detail}",
    BUSY: "task {detail} has it",
    NOTHING: "nothing is visible in it",
    TOMBSTONES: "only tombstones are visible in it",
    CONVERGED: "it is as the last task left it{detail}",
    SINGLE: "one segment of {bytes}, which is not too large",
    IDEAL: "{segments} segments of {bytes}: fewer could not hold them",
    MISALIGNED: "sizes are good, but it shares segments with chunks beside it: misaligned",
    MISALIGNED_ZONE: "sizes are good, but segments do not end where chunks do: misaligned with time zone {detail}",
    TOO_MANY: "{segments} segments of {bytes} could be {out}",
    OVERSIZE: "a segment of {largest} is larger than wanted",
    OVERFULL: "a segment has more rows than wanted",
    ALIGNED: "sizes are good, but it shares segments with chunks beside it, and the policy wants them aligned",
}
"""Why the rules say of a chunk what they say."""
IN_TASK = "; in task "
"""Between the reason of a chunk and the name of the task that has it."""


def ended_reason(reason: str, why: str) -> str:
    """Return what a chunk's reason becomes when its task ends without having done anything for it."""
    return f"{reason.partition(IN_TASK)[0]}; its task ended: {why}"


def chunk_changed(start_ms: int) -> str:
    """Return why a waiting task is replaced."""
    return f"what is in the chunk from {moment(start_ms)} has changed"
