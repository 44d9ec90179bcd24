"""Cached ring and placement rules of a web process; used unchanged while database and object store are unavailable."""

from __future__ import annotations

import logging
import threading

from engine.core.errors import LithifyError
from engine.placement.model import PlacementRules
from engine.placement.placer import Placer
from engine.placement.ring import EMPTY_RING, Ring
from engine.storage.model import ObjectStore
from webadmin.base.push_rejected import PushRejected
from webadmin.placement.services.read_ring import read_ring
from webadmin.placement.services.read_rules import read_rules

log = logging.getLogger(__name__)

Snapshot = tuple[Placer, dict[str, str]]
"""The placer, and the address of each instance of the same ring."""


class PlacementView:
    """Cached ring and rules. Call ``snapshot()`` once per push, so that placer and addresses are of the same ring."""

    def __init__(self, store: ObjectStore, zone: str) -> None:
        self._store = store
        self._zone = zone
        self._ring: Ring = EMPTY_RING
        self._rules: PlacementRules | None = None
        self._snapshot: Snapshot | None = None
        self._lock = threading.Lock()

    def snapshot(self) -> Snapshot:
        """Return the placer and addresses in use.

        Raises PushRejected while existing rules could not be read, because placement without them would be wrong.
        """
        if self._snapshot is None:
            raise PushRejected("unavailable", "no_placement_rules", "the placement rules cannot be read: retry")
        return self._snapshot

    def refresh_ring(self) -> None:
        """Read a newer ring; keep the known one if none is available."""
        self.offer_ring(read_ring(self._store, last=self._ring))

    def refresh_rules(self) -> None:
        """Read newer rules; keep the known ones if they cannot be read."""
        try:
            rules = read_rules(self._store, last=self._rules)
        except LithifyError as error:
            log.warning("rules_not_read error=%s", error)
            return
        if rules is not self._rules:
            self._rules = rules
            self._remake()

    def offer_ring(self, ring: Ring) -> None:
        """Replace the ring."""
        if ring is not self._ring:
            self._ring = ring
            self._remake()

    def _remake(self) -> None:
        with self._lock:
            if self._rules is not None:
                addresses = {instance.id: instance.address for instance in self._ring.instances}
                self._snapshot = (Placer(self._ring, self._rules, zone=self._zone), addresses)
