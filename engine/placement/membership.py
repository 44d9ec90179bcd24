"""Who hosts shards and who is written to, from what instances said last. Times are milliseconds of one clock.

An instance that is silent for a moment keeps its shards, and its profiles go to the next in the order at once. Only a
longer silence gives its shards away, so that a restart moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.placement.model import HEARTBEAT_TIMEOUT_S, Instance, InstanceState

SUSPECT_AFTER_S = 3.0
"""So long after its last heartbeat an instance gets no profiles: others take over within seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """An instance as it described itself, and when."""

    instance: Instance
    at_ms: int


def members(
    heartbeats: Iterable[Heartbeat],
    now_ms: int,
    *,
    suspect_after_s: float = SUSPECT_AFTER_S,
    timeout_s: float = HEARTBEAT_TIMEOUT_S,
) -> list[Instance]:
    """Return the instances that host shards; those that were silent for a moment are leaving, so nothing is sent.

    An instance that said that it leaves is out of the ring at once: it flushes what it has and gets nothing new.
    """
    present = []
    for heartbeat in heartbeats:
        silence_s = (now_ms - heartbeat.at_ms) / 1000
        if silence_s >= timeout_s or heartbeat.instance.state is InstanceState.LEAVING:
            continue
        is_suspect = silence_s >= suspect_after_s
        present.append(replace(heartbeat.instance, state=InstanceState.LEAVING) if is_suspect else heartbeat.instance)
    return present
