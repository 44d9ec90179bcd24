"""One round of adaptive placement: expire, build statistics, build rules, publish both.

``RulesBuilder`` is the whole cycle over an object store, for whoever may publish; it takes the time instead of asking
for it, and it does nothing while it is stopped. Rules that cannot be loaded stop a round before anything is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.formats.profile_block.model import BlockMeta
from engine.placement.build_rules import PlacementSettings, build_rules, restore_states
from engine.placement.model import PlacementRules
from engine.placement.publication import load_rules, publish_rules, publish_statistics
from engine.placement.signatures import SignedStore
from engine.placement.state_document import PlacementState
from engine.placement.statistics import CostModel, samples
from engine.storage.model import StorageError

INTERVAL_S = 15.0


@dataclass(slots=True)
class RulesBuilder:
    """The state of the cycle. ``confidence_s`` is how long statistics are gathered before rules are published."""

    store: SignedStore
    confidence_s: float = 0.0
    cost: CostModel | None = None
    state: PlacementState = field(default_factory=PlacementState)
    published: PlacementRules | None = None
    started_at_s: float | None = None

    def start(self, now_s: float) -> None:
        """Begin to publish; harmless if it already does."""
        if self.started_at_s is None:
            self.started_at_s = now_s

    def stop(self) -> None:
        """Publish no more and forget the rules; what was observed stays."""
        self.started_at_s = None
        self.published = None
        self.state.datasets = {}

    def observe(self, meta: BlockMeta, now_s: float) -> None:
        """Count a segment that entered the index."""
        for sample in samples(meta, self.cost):
            self.state.usage.add(sample, now_s)

    def tick(self, settings: PlacementSettings, now_ms: int) -> PlacementRules | None:
        """Do one round and return the rules that were published; None if nothing was to be.

        Errors of the store pass, as do BadDocument and StaleDocument: the next round tries again.
        """
        now_s = now_ms / 1000
        if self.started_at_s is None:
            return None
        if self.published is None:
            self._load()
        self.state.usage.expire(now_s)
        statistics = self.state.usage.build(now_s, now_ms)
        rules, states = build_rules(self.published or PlacementRules(), self.state.datasets, statistics, settings)
        self.state.datasets = states
        if now_s - self.started_at_s < self.confidence_s:
            return None
        failures: list[StorageError] = []
        try:
            publish_statistics(self.store, statistics)
        except StorageError as error:
            failures.append(error)
        publish_rules(self.store, rules)
        self.published = rules
        for failure in failures:
            raise failure
        return rules

    def _load(self) -> None:
        found = load_rules(self.store)
        self.published = found or PlacementRules()
        if not self.state.datasets:
            self.state.datasets = restore_states(self.published)
