"""Placement documents in the object store, where distributors find them when the database is away.

Every version of the rules stays as an object of its own until ``trim_history`` lets old ones go; ``current`` is what
readers load. Who may publish is decided elsewhere (in the database); the version key only shows two who both think
that they may: the second finds it taken and gets StaleDocument. Documents are signed; one that is not is refused, and
replaced by the next publication.
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
"""An hour of one version every 15 s."""


def publish_rules(store: SignedStore, rules: PlacementRules) -> None:
    """Write the rules as their version and as the current ones; StaleDocument if the version has other contents."""
    data = encode_rules(rules)
    key = history_key(rules.version)
    # A create that is tried again after a lost answer finds its own object: equal bytes are no conflict.
    if not store.create(key, data):
        try:
            is_same = store.get(key) == data
        except UnsignedDocument:
            store.put(key, data)
        else:
            if not is_same:
                raise StaleDocument(
                    f"placement rules version {rules.version} exist with other contents: load them first"
                )
    store.put(RULES_KEY, data)


def load_rules(store: SignedStore) -> PlacementRules | None:
    """Return the current rules; None if there were never any. Raises StorageError, BadDocument, UnsignedDocument."""
    try:
        return decode_rules(store.get(RULES_KEY))
    except ObjectNotFound:
        return None


def load_version(store: SignedStore, version: int) -> PlacementRules:
    """Return an earlier version."""
    return decode_rules(store.get(history_key(version)))


def publish_statistics(store: SignedStore, statistics: PlacementStatistics) -> None:
    """Write the statistics; the last writer wins."""
    store.put(STATISTICS_KEY, encode_statistics(statistics))


def publish_ring(store: SignedStore, ring: Ring) -> None:
    """Write the ring; the last writer wins."""
    store.put(RING_KEY, encode_ring(ring))


def load_ring(store: SignedStore) -> Ring | None:
    """Return the ring last published; None if there was never one."""
    try:
        return decode_ring(store.get(RING_KEY))
    except ObjectNotFound:
        return None


def history_key(version: int) -> str:
    """Return where a version of the rules lies; keys sort by version."""
    return f"{HISTORY_PREFIX}{version:020d}.binpb"


def trim_history(store: ObjectStore, version: int) -> int:
    """Delete the versions that are so many behind this one that nobody asks for them; return how many."""
    last_kept = history_key(max(0, version - HISTORY_MAX))
    old = [found.key for found in store.list(HISTORY_PREFIX) if found.key < last_kept]
    for key in old:
        store.delete(key)
    return len(old)


class RulesReader:
    """A distributor's view of the rules: what it loaded last, whatever happens to the store afterwards."""

    def __init__(self, store: SignedStore) -> None:
        self._store = store
        self._rules: PlacementRules | None = None

    def start(self) -> PlacementRules:
        """Load for the first time; rules that were never written are empty ones, any other error passes."""
        self._rules = load_rules(self._store) or PlacementRules()
        return self._rules

    def refresh(self) -> PlacementRules:
        """Load again and keep what is newer; if that fails the error passes and ``rules`` stays what it was."""
        found = load_rules(self._store)
        if found is not None:
            self.offer(found)
        return self.rules

    def offer(self, found: PlacementRules) -> bool:
        """Take rules from wherever they come; False if they are older than those in force."""
        if (found.created_at_ms, found.version) < (self.rules.created_at_ms, self.rules.version):
            return False
        self._rules = found
        return True

    @property
    def rules(self) -> PlacementRules:
        """The rules in force."""
        assert self._rules is not None, "a reader is started before it is asked"
        return self._rules
