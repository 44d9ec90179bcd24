"""Distribute decoded pushes to segment writers; one distributor per web process.

The shard of a profile is decided here and does not change. The instance that writes it depends on availability. Ring,
limits and revoked credentials are refreshed in the background and stay in use during an outage of their source.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from django.conf import settings
from django.db import DatabaseError, connection

from engine.core.errors import LithifyError
from engine.ingest.labels import SERVICE_NAME, series_hash
from engine.ingest.model import PushedProfile
from engine.ingest.segments.segment_push import PushedSeries, encode_segment_push
from engine.placement.errors import EmptyRing, NoInstance
from engine.placement.placer import Decision
from engine.storage.model import ObjectStore
from engine.storage.opening import open_store
from webadmin.base.access.revocations import Revocations
from webadmin.base.database.database_clock import read_database_clock
from webadmin.base.push_rejected import PushRejected
from webadmin.base.senders import Senders
from webadmin.ingest.placement_view import PlacementView
from webadmin.ingest.push_tally import PushTally
from webadmin.ingest.services.change_push_limit import set_push_limits
from webadmin.ingest.services.count_pushes import count_pushes
from webadmin.ingest.shard_delivery import ShardDelivery
from webadmin.ingest.tenant_budget import TenantBudgets
from webadmin.ingest.tenant_limits import ALL_TENANTS, DEFAULTS, TenantPushLimits, limits_of
from webadmin.ingest.writer_clients import WriterClients

log = logging.getLogger(__name__)

PUSH_SECONDS = 15.0
"""Timeout of a push without a deadline from the client, in seconds."""
REFRESH_SECONDS = 2.0
RULES_EVERY = 2
"""Number of refreshes between two reads of rules and limits, which change slowly and may be large."""
REVOCATIONS_SECONDS = 4.0


@dataclass(slots=True)
class ShardGroup:
    """Profiles of one push for one shard, with the placement decision for the first of them."""

    decision: Decision
    series: list[PushedSeries] = field(default_factory=list)


class Distributor:
    """Distribute pushes; one instance is shared by all threads of a process."""

    def __init__(self, store: ObjectStore, *, zone: str = "") -> None:
        self.placement = PlacementView(store, zone)
        self.revocations = Revocations(store)
        self.senders = Senders(self.revocations)
        self.budgets = TenantBudgets()
        self.tally = PushTally()
        self.writers = WriterClients()
        self._set_limits: dict[str, dict[str, int]] = {}
        self._limits: dict[str, TenantPushLimits] = {}

    def limits(self, tenant: str) -> TenantPushLimits:
        """Return the limits of a tenant as of the last refresh."""
        if tenant not in self._set_limits:
            tenant = ALL_TENANTS
        return self._limits.get(tenant, DEFAULTS)

    def refresh(self, *, rules_too: bool = True) -> None:
        """Refresh ring, limits and rules, and flush counts. Outages of database or object store raise no error."""
        self.placement.refresh_ring()
        if rules_too:
            self.placement.refresh_rules()
            self._refresh_limits()
        self.flush_counts()

    def flush_counts(self) -> None:
        """Add the counts to the shared sums; keep them in memory while the database is unavailable."""
        sums = self.tally.take()
        try:
            count_pushes(sums)
        except DatabaseError as error:
            self.tally.give_back(sums)
            log.warning("pushes_not_counted error=%s", error)

    def distribute(self, tenant: str, profiles: Iterable[PushedProfile], now_ns: int, deadline: float) -> None:
        """Send profiles to the writers of their shards and return when all are durable.

        ``deadline`` is a ``time.monotonic`` value. Raises PushRejected if a profile was not stored:
        ``invalid_argument`` if no writer can store it, ``unavailable`` if the same push can be retried.
        """
        placer, addresses = self.placement.snapshot()
        groups: dict[int, ShardGroup] = {}
        try:
            for profile in profiles:
                decision = placer.decide(tenant, _dataset(profile), series_hash(profile.labels))
                group = groups.setdefault(decision.shard, ShardGroup(decision))
                group.series.append(PushedSeries(labels=profile.labels, pprof=profile.pprof, received_at_ns=now_ns))
        except (EmptyRing, NoInstance) as error:
            raise PushRejected("unavailable", error.code, f"no segment writer accepts profiles: {error}") from error
        deliveries = [
            ShardDelivery(self.writers, addresses, group.decision, encode_segment_push(tenant, shard, group.series))
            for shard, group in groups.items()
        ]
        for delivery in deliveries:  # Send all deliveries before waiting for the first response.
            delivery.begin(deadline)
        failures = [delivery.finish(deadline) for delivery in deliveries]
        for failure in sorted(filter(None, failures), key=lambda failure: failure.code != "unavailable"):
            raise failure

    def close(self) -> None:
        """Flush the counts and close the connections."""
        self.flush_counts()
        self.writers.close()

    def _refresh_limits(self) -> None:
        try:
            read_database_clock()
            found = set_push_limits()
        except DatabaseError as error:
            log.warning("push_limits_not_read error=%s", error)
            return
        of_all_tenants = found.get(ALL_TENANTS, {})
        self._limits = {tenant: limits_of(own, of_all_tenants) for tenant, own in {ALL_TENANTS: {}, **found}.items()}
        self._set_limits = found


def _dataset(profile: PushedProfile) -> str:
    return next((value for name, value in profile.labels if name == SERVICE_NAME), "")


_current: Distributor | None = None
_starting = threading.Lock()


def distributor() -> Distributor:
    """Return the distributor of this process. It is created by the first push, after any fork."""
    if _current is not None:
        return _current
    with _starting:
        if _current is None:
            use(_started())
    assert _current is not None
    return _current


def use(found: Distributor | None) -> None:
    """Replace the distributor of this process; None makes the next push create a new one."""
    global _current
    _current = found


def _started() -> Distributor:
    made = Distributor(open_store(settings.OBJECT_STORE_URL), zone=settings.DISTRIBUTOR_ZONE)
    made.revocations.refresh()
    made.refresh()
    stop = threading.Event()
    threads = [
        threading.Thread(target=keep, args=(made, stop), name=f"distributor-{keep.__name__}", daemon=True)
        for keep in (_keep_fresh, _keep_revocations)
    ]
    for thread in threads:
        thread.start()

    def end() -> None:
        stop.set()
        for thread in threads:
            thread.join(timeout=5)
        made.close()

    atexit.register(end)
    return made


def _keep_fresh(made: Distributor, stop: threading.Event) -> None:
    rounds = 0
    while not stop.wait(REFRESH_SECONDS):
        rounds += 1
        try:
            made.refresh(rules_too=rounds % RULES_EVERY == 0)
        except (LithifyError, DatabaseError, OSError):
            log.exception("distributor_not_refreshed")
        finally:
            connection.close()


def _keep_revocations(made: Distributor, stop: threading.Event) -> None:
    """Refresh the list of revoked secrets in its own thread, because a refresh can block on the database."""
    while not stop.wait(REVOCATIONS_SECONDS):
        try:
            made.revocations.refresh()
        except (LithifyError, OSError):
            log.exception("revocations_not_refreshed")
