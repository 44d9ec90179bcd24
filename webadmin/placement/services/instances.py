"""Registration, heartbeats and departure of segment writers; each change of membership updates the ring.

All times are by the database's clock, so writers need no synchronised clocks. Silent writers are detected by the
heartbeats of the others alone.
"""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from engine.core.errors import LithifyError
from engine.placement import model as placement
from engine.placement.documents import decode_ring, encode_ring
from engine.placement.errors import RingRefused
from engine.placement.membership import Heartbeat, ring_members
from engine.placement.ring import EMPTY_RING, Ring, change_ring
from webadmin.base.access.services import record_audit
from webadmin.base.database import dialect
from webadmin.placement.models import (
    ADDRESS_MAX,
    NAME_MAX,
    STORE_ERROR_MAX,
    ZONE_MAX,
    Instance,
    RingChange,
    RingHead,
    Slot,
)

log = logging.getLogger(__name__)

HEARTBEAT_ACTOR = "writers"
REASON_MAX = 500


class InstanceRefused(LithifyError):
    """A segment writer cannot be registered with these values; the message says what to change."""

    code = "instance_refused"


class HeartbeatAnswer(enum.StrEnum):
    """The registry's answer to a heartbeat."""

    ACTIVE = "active"  # continue
    LEAVING = "leaving"  # draining was requested
    UNKNOWN = "unknown"  # not registered, or removed as lost: register again


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """An instance's registration. ``address`` is where distributors reach it, ``http://host:port``."""

    name: str
    address: str
    zone: str = ""
    tokens: int = placement.TOKENS_DEFAULT
    build: str = ""

    def check(self) -> None:
        """Raise InstanceRefused if a value is invalid."""
        if not self.name.isprintable() or not 1 <= len(self.name) <= NAME_MAX:
            raise InstanceRefused(f"instance {self.name!r}: give 1 to {NAME_MAX} printable characters")
        if len(self.zone) > ZONE_MAX or not self.zone.isprintable():
            raise InstanceRefused(f"zone {self.zone!r}: give at most {ZONE_MAX} printable characters")
        if not self.address.startswith(("http://", "https://")) or len(self.address) > ADDRESS_MAX:
            raise InstanceRefused(f"address {self.address!r}: give http://host:port")
        if not 1 <= self.tokens <= placement.TOKENS_MAX:
            raise InstanceRefused(f"{self.tokens} tokens: give 1 to {placement.TOKENS_MAX}")


def register_instance(registration: Registration) -> Ring:
    """Make an instance an active member, whatever its previous state; return the ring with it."""
    registration.check()
    with transaction.atomic():
        _hold_ring()
        now_ms = dialect.clock_ms()
        row = {
            "zone": registration.zone,
            "address": registration.address,
            "tokens": registration.tokens,
            "build": registration.build[:50],
            "state": Instance.State.ACTIVE,
            "registered_at_ms": now_ms,
            "heartbeat_at_ms": now_ms,
            "left_at_ms": None,
            "store_error": "",
        }
        Instance.objects.update_or_create(name=registration.name, defaults=row)
        record_audit(
            actor=f"writer:{registration.name}",
            action="register_instance",
            target=registration.name,
            detail={"zone": registration.zone, "address": registration.address, "tokens": registration.tokens},
        )
        return _settle(f"{registration.name} registered", f"writer:{registration.name}")


def heartbeat(name: str, *, store_error: str = "") -> HeartbeatAnswer:
    """Record a heartbeat, and why the last attempt to store segments failed, "" if it succeeded.

    It updates a single row.
    """
    present = Instance.objects.filter(name=name, left_at_ms=None)
    if not present.update(heartbeat_at_ms=dialect.clock_ms(), store_error=store_error[:STORE_ERROR_MAX]):
        return HeartbeatAnswer.UNKNOWN
    state = present.values_list("state", flat=True).first()
    return HeartbeatAnswer(state) if state else HeartbeatAnswer.UNKNOWN  # it was removed between the two statements


def drain_instance(name: str, *, actor: str, reason: str) -> bool:
    """Drain an instance: it gets nothing new, flushes and exits.

    Return False if it is not present or draining already.
    """
    with transaction.atomic():
        _hold_ring()
        active = Instance.objects.filter(name=name, left_at_ms=None, state=Instance.State.ACTIVE)
        if not active.update(state=Instance.State.LEAVING):
            return False
        record_audit(actor=actor, action="drain_instance", target=name, detail={"reason": reason})
        _settle(f"{name} leaves: {reason}", actor)
    return True


def leave(name: str) -> bool:
    """Remove an instance that has flushed everything. Return False if it was removed already."""
    with transaction.atomic():
        _hold_ring()
        gone = Instance.objects.filter(name=name, left_at_ms=None).update(
            state=Instance.State.LEAVING, left_at_ms=dialect.clock_ms()
        )
        if gone:
            record_audit(actor=f"writer:{name}", action="leave", target=name)
            _settle(f"{name} left", f"writer:{name}")
    return bool(gone)


def settle_ring() -> Ring:
    """Update the ring to the present instances: silent ones get nothing, lost ones lose their shards.

    Call it only after the database was reachable for several heartbeats: right after an outage every instance looks
    silent.
    """
    if _change(dialect.clock_ms(), current_ring()) is None:
        return current_ring()
    with transaction.atomic():
        _hold_ring()
        return _settle("heartbeats", HEARTBEAT_ACTOR)


def size_ring(shards: int, *, actor: str, reason: str) -> Ring:
    """Set the minimum number of shards, ahead of expected growth: most series move once, now."""
    if not 1 <= shards <= placement.SHARDS_MAX:
        raise RingRefused(f"{shards} shards: give 1 to {placement.SHARDS_MAX}")
    with transaction.atomic():
        _hold_ring()
        RingHead.objects.filter(id=1).update(shards_override=shards)
        record_audit(actor=actor, action="size_ring", target=str(shards), detail={"reason": reason})
        return _settle(f"{shards} shards wished: {reason}", actor)


def current_ring() -> Ring:
    """Return the ring in force; one without shards if no instance ever registered."""
    document = RingHead.objects.filter(id=1).values_list("document", flat=True).first()
    return decode_ring(bytes(document)) if document else EMPTY_RING


def _hold_ring() -> None:
    """Lock the ring until the transaction ends."""
    RingHead.objects.get_or_create(id=1)
    dialect.locked(RingHead.objects.filter(id=1)).get()


def _change(now_ms: int, ring: Ring) -> Ring | None:
    """Return the ring for the present instances; None if it is the one in force."""
    heartbeats = [
        Heartbeat(
            instance=placement.Instance(
                id=row.name,
                zone=row.zone,
                address=row.address,
                tokens=row.tokens,
                state=placement.InstanceState(row.state),
            ),
            at_ms=row.heartbeat_at_ms,
        )
        for row in Instance.objects.filter(left_at_ms=None)
    ]
    present = ring_members(
        heartbeats,
        now_ms,
        suspect_after_s=settings.WRITER_SUSPECT_SECONDS,
        timeout_s=settings.WRITER_TIMEOUT_SECONDS,
    )
    wished = RingHead.objects.filter(id=1).values_list("shards_override", flat=True).first()
    changed = change_ring(ring, present, shards=_overridden_size(ring, present, wished))
    return None if changed is ring else changed


def _overridden_size(ring: Ring, present: list[placement.Instance], wished: int | None) -> int | None:
    """Return the size set by an operator, unless the fleet has outgrown it; None sizes the ring by the fleet."""
    if wished is None or sum(instance.tokens for instance in present) > wished:
        return None
    return max(ring.shards, wished)


def _settle(reason: str, actor: str) -> Ring:
    """Write the ring for the present instances; the caller holds its lock."""
    now_ms = dialect.clock_ms()
    timeout_ms = round(settings.WRITER_TIMEOUT_SECONDS * 1000)
    lost = Instance.objects.filter(left_at_ms=None, heartbeat_at_ms__lte=now_ms - timeout_ms)
    for name in lost.values_list("name", flat=True):
        record_audit(actor=actor, action="lose_instance", target=name, detail={"silent_for_ms": timeout_ms})
    lost.update(left_at_ms=now_ms)
    before = current_ring()
    after = _change(now_ms, before)
    if after is None:
        return before
    moved = _moved(before, after)
    _write_slots(after, moved, now_ms)
    RingHead.objects.filter(id=1).update(version=after.version, document=encode_ring(after), changed_at_ms=now_ms)
    RingChange.objects.create(
        version=after.version,
        at_ms=now_ms,
        reason=_why(before, after, reason)[:REASON_MAX],
        actor=actor,
        shards=after.shards,
        instance_count=len(after.instances),
        moved_slots=len(moved),
    )
    log.info("ring_changed version=%d shards=%d moved=%d: %s", after.version, after.shards, len(moved), reason)
    return after


def _why(before: Ring, after: Ring, reason: str) -> str:
    """Return which instances joined, left or changed, after the reason of the change."""
    old = {instance.id: instance for instance in before.instances}
    new = {instance.id: instance for instance in after.instances}
    parts = [f"{name} came" for name in sorted(new.keys() - old.keys())]
    parts += [f"{name} is gone" for name in sorted(old.keys() - new.keys())]
    parts += [
        f"{name} is {'back' if new[name].is_writable() else 'silent or leaving'}"
        for name in sorted(old.keys() & new.keys())
        if old[name].is_writable() != new[name].is_writable()
    ]
    return f"{reason}: {', '.join(parts)}" if parts else reason


def _moved(before: Ring, after: Ring) -> list[tuple[str, int, str]]:
    """Return the slots (zone, shard, new owner) that another instance hosts now."""
    moved = []
    for zone, owners in after.tables.items():
        old = before.tables.get(zone, ())
        for position, owner in enumerate(owners):
            if position >= len(old) or old[position] != owner:
                moved.append((zone, position + 1, owner))
    return moved


def _write_slots(ring: Ring, moved: list[tuple[str, int, str]], now_ms: int) -> None:
    """Update only the rows of the slots that moved; those of zones without instances are deleted."""
    Slot.objects.exclude(zone__in=ring.tables).delete()
    Slot.objects.filter(shard__gt=ring.shards).delete()
    rows = [
        Slot(zone=zone, shard=shard, instance=owner, ring_version=ring.version, moved_at_ms=now_ms)
        for zone, shard, owner in moved
    ]
    Slot.objects.bulk_create(
        rows,
        batch_size=500,
        update_conflicts=True,
        unique_fields=["zone", "shard"],
        update_fields=["instance", "ring_version", "moved_at_ms"],
    )
