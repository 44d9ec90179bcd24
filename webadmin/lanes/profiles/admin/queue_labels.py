"""Texts about when a job is made of a queue's blocks, and why."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.safestring import SafeString

from webadmin.adminkit import formatting as show


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFill:
    """The numbers that decide when a queue is ready.

    Times are command time; ``blocks_max`` None: no policy for its level.
    """

    now_ms: int
    block_count: int
    byte_count: int
    oldest_arrival_ms: int | None
    ready_at_ms: int | None
    blocks_max: int | None
    age_seconds: int | None
    bytes_max: int | None

    @classmethod
    def from_row(cls, row: object) -> QueueFill:
        """Return the numbers of a row of ``queues_for_list``."""
        return cls(**{name: getattr(row, name) for name in cls.__slots__})


def ready_badge(fill: QueueFill) -> SafeString | str:
    """Return a badge: whether the queue is ready, or when it will be."""
    if not fill.block_count or fill.ready_at_ms is None:
        return show.badge("empty", "quiet")
    if fill.blocks_max is None:
        return show.badge("no policy", "bad", "no level policy for this lane and level")
    wait_ms = fill.ready_at_ms - fill.now_ms
    if wait_ms > 0:
        return show.badge(f"in {show.duration_text(max(wait_ms, 1000))}", "quiet")
    return show.badge("ready", "busy", f"since {show.duration_text(-wait_ms)}")


def ready_reason(fill: QueueFill) -> str:
    """Return why the queue is ready, or what is missing, in words."""
    if not fill.block_count or fill.ready_at_ms is None or fill.oldest_arrival_ms is None:
        return "no blocks waiting"
    if fill.blocks_max is None or fill.age_seconds is None:
        return "no level policy configured"
    filled = f"{show.count_text(fill.block_count)} of {fill.blocks_max} blocks"
    limit = show.duration_text(fill.age_seconds * 1000)
    if fill.block_count >= fill.blocks_max:
        return f"{filled}: full"
    if fill.bytes_max and fill.byte_count >= fill.bytes_max:
        return f"{show.size_text(fill.byte_count)} of {show.size_text(fill.bytes_max)}: byte limit reached"
    if fill.ready_at_ms <= fill.now_ms:
        return f"{filled}; the oldest has waited longer than {limit}"
    return f"{filled}; ready when full or when the oldest has waited {limit}"
