"""Membership of the ring, from the heartbeats of instances. Times are milliseconds of one clock.

An instance without a heartbeat for a short time keeps its shards, and its profiles go to the next candidate. It loses
its shards only after a longer time, so that a restart does not move them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.placement.model import HEARTBEAT_TIMEOUT_S, Instance, InstanceState

SUSPECT_AFTER_S = 3.0
"""Time without a heartbeat after which an instance gets no profiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The description that an instance sent, and the time of its arrival."""

    instance: Instance
    at_ms: int


def ring_members(
    heartbeats: Iterable[Heartbeat],
    now_ms: int,
    *,
    suspect_after_s: float = SUSPECT_AFTER_S,
    timeout_s: float = HEARTBEAT_TIMEOUT_S,
) -> list[Instance]:
    """Return the instances that host shards; those without a recent heartbeat are LEAVING, so they get no profiles.

    An instance that reported LEAVING is removed at once: it flushes its data and gets no more.
    """
    present = []
    for heartbeat in heartbeats:
        silence_s = (now_ms - heartbeat.at_ms) / 1000
        if silence_s >= timeout_s or heartbeat.instance.state is InstanceState.LEAVING:
            continue
        is_suspect = silence_s >= suspect_after_s
        present.append(replace(heartbeat.instance, state=InstanceState.LEAVING) if is_suspect else heartbeat.instance)
    return present
