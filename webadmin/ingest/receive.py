"""Process a push, the same for every endpoint: authenticate, limit, decode, distribute."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from django.http import HttpRequest

from engine.ingest.ingest_request import bytes_of
from engine.ingest.labels import series_hash
from engine.ingest.model import PushedProfile, PushLimits, Refused
from engine.ingest.push import DecodedPush
from webadmin.base.compressed_bodies import BadGzip, BodyTooLarge, UnreadableBody
from webadmin.base.database.database_clock import database_clock_ms
from webadmin.base.push_rejected import PushRejected
from webadmin.base.senders import Sender
from webadmin.ingest.distributor import PUSH_SECONDS, Distributor, distributor
from webadmin.ingest.models import ACCEPTED
from webadmin.ingest.plain_answers import BODY_SIZE
from webadmin.ingest.tenant_limits import TenantPushLimits

Decode = Callable[[PushLimits, int], DecodedPush]
"""Decode a body from limits and time (unix nanoseconds) to accepted and rejected profiles."""
BREAKS_OFF = "body_breaks_off"
MESSAGES_MAX = 5
"""Maximum rejection messages in the error of one push."""


def identify(request: HttpRequest) -> Sender:
    """Return the authenticated sender, before the body is read.

    Raises PushRejected, and counts it, if the credential is invalid or the tenant has exceeded its rate.
    """
    found = distributor()
    tenant = ""
    try:
        sender = found.senders.identify(request)
        tenant = sender.tenant
        limits = found.limits(tenant)
        if not found.budgets.may_read(tenant, limits, time.monotonic()):
            raise _rate_limited(tenant, limits)
    except PushRejected as error:
        found.tally.add(tenant, error.reason, message=error.message)
        raise
    return sender


def receive(sender: Sender, size: int, decode: Decode, *, deadline: float | None = None) -> None:
    """Store a push of ``size`` bytes and return when all its profiles are durable.

    Raises PushRejected otherwise; valid profiles are stored even if others of the push are rejected. Rejected bytes
    count towards the tenant's rate limit too.
    """
    found = distributor()
    try:
        _receive(found, sender.tenant, size, decode, deadline or time.monotonic() + PUSH_SECONDS)
    except PushRejected as error:
        if not error.is_counted:
            found.tally.add(sender.tenant, error.reason, message=error.message)
        raise


def body_limit(sender: Sender) -> int:
    """Return the maximum body size of the sender's tenant, in bytes."""
    return distributor().limits(sender.tenant).profile.body_bytes_max


def count_unread(sender: Sender, reason: str, message: str, work_bytes: int = 0) -> None:
    """Count a push whose body could not be read, and charge ``work_bytes`` to the tenant's rate limit."""
    found = distributor()
    found.tally.add(sender.tenant, reason, message=message)
    found.budgets.charge(sender.tenant, work_bytes)


def unread(sender: Sender, error: UnreadableBody) -> PushRejected:
    """Count and charge a push whose body could not be read; return the error to raise."""
    reason = BODY_SIZE if isinstance(error, BodyTooLarge) else "bad_gzip" if isinstance(error, BadGzip) else BREAKS_OFF
    count_unread(sender, reason, str(error), error.work_bytes)
    return PushRejected("invalid_argument", reason, str(error))


def refuse(sender: Sender, code: str, reason: str, message: str) -> PushRejected:
    """Count a push that was rejected before its body was decoded; return the error to raise."""
    distributor().tally.add(sender.tenant, reason, message=message)
    return PushRejected(code, reason, message)


def _receive(found: Distributor, tenant: str, size: int, decode: Decode, deadline: float) -> None:
    limits, now_ns = found.limits(tenant), database_clock_ms() * 1_000_000
    if not found.budgets.may_send(tenant, size, limits, time.monotonic()):
        raise _rate_limited(tenant, limits)
    try:
        decoded = decode(limits.profile, now_ns)
    except Refused as error:
        found.budgets.charge(tenant, max(0, error.work_bytes - size))
        raise PushRejected("invalid_argument", error.reason, error.message) from error
    found.budgets.charge(tenant, max(0, bytes_of(decoded.profiles) - size, decoded.work_bytes - size))
    refused = list(decoded.refused)
    taken = _within_series(found, tenant, decoded.profiles, limits.series_max, refused)
    failure = None
    if taken:
        try:
            found.distribute(tenant, taken, now_ns, deadline)
            found.tally.add(tenant, ACCEPTED, count=len(taken), size=bytes_of(taken))
        except PushRejected as error:
            found.tally.add(tenant, error.reason, count=len(taken), message=error.message)
            failure = error
    for one in refused:
        found.tally.add(tenant, one.reason, message=one.message)
    if failure is not None:
        raise _joined(failure.code, failure.reason, [failure.message, *map(str, refused)])
    if refused:
        is_full = all(one.reason == "series_limit" for one in refused)
        raise _joined("resource_exhausted" if is_full else "invalid_argument", refused[0].reason, [*map(str, refused)])


def _rate_limited(tenant: str, limits: TenantPushLimits) -> PushRejected:
    message = f"tenant {tenant} sends more than {limits.bytes_per_second} bytes/s (burst {limits.burst_bytes})"
    return PushRejected("resource_exhausted", "rate_limited", message)


def _joined(code: str, reason: str, messages: Sequence[str]) -> PushRejected:
    """Return one error for all rejected profiles, which are already counted."""
    distinct = list(dict.fromkeys(messages))
    more = f"; and {len(distinct) - MESSAGES_MAX} more" if len(distinct) > MESSAGES_MAX else ""
    return PushRejected(code, reason, "; ".join(distinct[:MESSAGES_MAX]) + more, is_counted=True)


def _within_series(
    found: Distributor, tenant: str, profiles: Sequence[PushedProfile], most: int, refused: list[Refused]
) -> list[PushedProfile]:
    """Return the profiles within the tenant's series limit; rejections of the others are added to ``refused``."""
    fingerprints = [series_hash(profile.labels) for profile in profiles]
    admitted = found.budgets.admit_series(tenant, fingerprints, most, time.monotonic())
    lost = admitted.count(False)
    refused.extend([Refused("series_limit", f"tenant {tenant} has {most} active series already")] * lost)
    return [profile for profile, is_in in zip(profiles, admitted, strict=True) if is_in]
