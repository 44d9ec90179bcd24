"""Ring and rules as a web process saw them last; pushes go on by them while database and object store are away."""

from __future__ import annotations

import logging
import threading

from engine.core.errors import LithifyError
from engine.placement.model import PlacementRules
from engine.placement.placer import Placer
from engine.placement.ring import EMPTY_RING, Ring
from engine.storage.model import ObjectStore
from webadmin.base.not_taken import NotTaken
from webadmin.placement.services.read_ring import read_ring
from webadmin.placement.services.read_rules import read_rules

log = logging.getLogger(__name__)

Snapshot = tuple[Placer, dict[str, str]]
"""Who decides, and the address of each instance of the same ring."""


class PlacementView:
    """Take ``snapshot()`` once per push: what it holds belongs together."""

    def __init__(self, store: ObjectStore, zone: str) -> None:
        self._store = store
        self._zone = zone
        self._ring: Ring = EMPTY_RING
        self._rules: PlacementRules | None = None
        self._snapshot: Snapshot | None = None
        self._lock = threading.Lock()

    def snapshot(self) -> Snapshot:
        """Return what decides now. NotTaken while rules that exist could not be read: nobody begins without them."""
        if self._snapshot is None:
            raise NotTaken("unavailable", "no_placement_rules", "the placement rules cannot be read: try again")
        return self._snapshot

    def refresh_ring(self) -> None:
        """Look for a newer ring; what was known stays if there is none to be had."""
        self.offer_ring(read_ring(self._store, last=self._ring))

    def refresh_rules(self) -> None:
        """Look for newer rules; what was known stays if they cannot be read."""
        try:
            rules = read_rules(self._store, last=self._rules)
        except LithifyError as error:
            log.warning("rules_not_read error=%s", error)
            return
        if rules is not self._rules:
            self._rules = rules
            self._remake()

    def offer_ring(self, ring: Ring) -> None:
        """Use a ring from now on."""
        if ring is not self._ring:
            self._ring = ring
            self._remake()

    def _remake(self) -> None:
        with self._lock:
            if self._rules is not None:
                addresses = {instance.id: instance.address for instance in self._ring.instances}
                self._snapshot = (Placer(self._ring, self._rules, zone=self._zone), addresses)
