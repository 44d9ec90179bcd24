"""Placement documents in the object store, where distributors find them if the database is unavailable.

Readers load ``current``. Each version of the rules is also an object of its own until ``trim_history`` deletes it. The
database elects the publisher; the key of the version detects two concurrent publishers: the second gets StaleDocument.
Documents are signed; unsigned ones are rejected by readers and replaced by the next publication.
"""

from __future__ import annotations

from engine.placement.documents import decode_ring, decode_rules, encode_ring, encode_rules, encode_statistics
from engine.placement.errors import StaleDocument, UnsignedDocument
from engine.placement.model import PlacementRules
from engine.placement.ring import Ring
from engine.placement.signatures import SignedStore
from engine.placement.statistics import PlacementStatistics
from engine.storage.model import ObjectNotFound, ObjectStore

FOLDER = "placement"
RULES_KEY = f"{FOLDER}/rules/current.binpb"
STATISTICS_KEY = f"{FOLDER}/statistics.binpb"
RING_KEY = f"{FOLDER}/ring.binpb"
HISTORY_PREFIX = f"{FOLDER}/rules/history/"
HISTORY_MAX = 240
"""One hour at one version per 15 s."""


def publish_rules(store: SignedStore, rules: PlacementRules) -> None:
    """Write the rules as a version and as the current rules. Raises StaleDocument if the version has other contents."""
    data = encode_rules(rules)
    key = history_key(rules.version)
    # A create that is retried after a lost response finds its own object: equal bytes are not a conflict.
    if not store.create(key, data):
        try:
            is_same = store.get(key) == data
        except UnsignedDocument:
            store.put(key, data)
        else:
            if not is_same:
                raise StaleDocument(
                    f"placement rules version {rules.version} exist with other contents: load and build again"
                )
    store.put(RULES_KEY, data)


def load_rules(store: SignedStore) -> PlacementRules | None:
    """Return the current rules, None if there are none. Raises StorageError, BadDocument, UnsignedDocument."""
    try:
        return decode_rules(store.get(RULES_KEY))
    except ObjectNotFound:
        return None


def load_version(store: SignedStore, version: int) -> PlacementRules:
    """Return a version of the rules. Raises the errors of ``load_rules``, and ObjectNotFound."""
    return decode_rules(store.get(history_key(version)))


def publish_statistics(store: SignedStore, statistics: PlacementStatistics) -> None:
    """Write the statistics; the last writer wins."""
    store.put(STATISTICS_KEY, encode_statistics(statistics))


def publish_ring(store: SignedStore, ring: Ring) -> None:
    """Write the ring; the last writer wins."""
    store.put(RING_KEY, encode_ring(ring))


def load_ring(store: SignedStore) -> Ring | None:
    """Return the published ring, None if there is none. Raises the errors of ``load_rules``."""
    try:
        return decode_ring(store.get(RING_KEY))
    except ObjectNotFound:
        return None


def history_key(version: int) -> str:
    """Return the key of a version of the rules; keys sort by version."""
    return f"{HISTORY_PREFIX}{version:020d}.binpb"


def trim_history(store: ObjectStore, version: int) -> int:
    """Delete the versions older than the last HISTORY_MAX before ``version``; return their number."""
    last_kept = history_key(max(0, version - HISTORY_MAX))
    old = [found.key for found in store.list(HISTORY_PREFIX) if found.key < last_kept]
    for key in old:
        store.delete(key)
    return len(old)


class RulesReader:
    """Holds the last rules that a distributor loaded, so that it continues while the store is unavailable."""

    def __init__(self, store: SignedStore) -> None:
        self._store = store
        self._rules: PlacementRules | None = None

    def start(self) -> PlacementRules:
        """Load the rules for the first time; missing rules are empty. Raises the errors of ``load_rules``."""
        self._rules = load_rules(self._store) or PlacementRules()
        return self._rules

    def refresh(self) -> PlacementRules:
        """Load the rules and keep them if they are newer; after an error, ``rules`` is unchanged."""
        found = load_rules(self._store)
        if found is not None:
            self.offer(found)
        return self.rules

    def offer(self, found: PlacementRules) -> bool:
        """Replace the current rules unless ``found`` is older; return whether they were replaced."""
        if (found.created_at_ms, found.version) < (self.rules.created_at_ms, self.rules.version):
            return False
        self._rules = found
        return True

    @property
    def rules(self) -> PlacementRules:
        """The current rules."""
        assert self._rules is not None, "start() must be called first"
        return self._rules
