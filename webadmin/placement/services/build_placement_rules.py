"""One round of adaptive placement: new segments → statistics → rules → a version in the database → the object store.

1. The starting state of a round is one row; the next one is written only if that row is unchanged. So two beats are
   harmless, and each segment counts once.
2. Versions and times only grow, even beyond those in the store that a restored database does not have.
3. Rules in the store that cannot be read stop the round before anything is written: the next one reads the usage
   again. Unsigned ones are not ours: they are replaced.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from engine.placement.build_rules import build_rules, restore_states
from engine.placement.documents import decode_rules, encode_rules, encode_statistics
from engine.placement.errors import UnsignedDocument
from engine.placement.model import PlacementRules
from engine.placement.publication import load_rules, publish_rules, publish_statistics, trim_history
from engine.placement.signatures import SignedStore
from engine.placement.state_document import PlacementState, decode_state, encode_state
from engine.placement.statistics import PlacementStatistics, segment_samples
from engine.storage.model import ObjectStore, StorageError
from webadmin.placement.new_segments import LogPlace, entries_to_read, segments_of
from webadmin.placement.operator_settings import operator_settings
from webadmin.placement.rule_changes import RuleDifference, differences, rule_json
from webadmin.placement.rule_models import WHY_MAX, RuleChange, RulesHead, RulesVersion

log = logging.getLogger(__name__)

HISTORY_KEPT_MS = 30 * 86_400_000
CHANGES_KEPT_MAX = 2_000
"""Stored changes per version: if a fleet of datasets changes at once, the rest is only counted."""
ROWS_PER_INSERT = 500
VERSIONS_PER_TRIM = 40
REASONS_NAMED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """The outcome of a round. ``version`` is None if it published nothing: too early, or another builder was faster."""

    version: int | None
    segments: int
    datasets: int = 0
    changes: int = 0
    is_late: bool = False


@dataclass(slots=True, kw_only=True)
class _Round:
    """A running round; ``seen`` is the head it started from, ``before`` the newest rules there are."""

    seen: RulesHead
    before: PlacementRules
    state: PlacementState
    now_ms: int
    place: LogPlace
    read_until_ms: int
    segments: int = 0


def build_placement_rules(*, store: ObjectStore, now_ms: int, confidence_ms: int = 0) -> RoundOutcome:
    """Run one round as of ``now_ms`` (the database's clock).

    Propagates errors of the store, BadDocument, StaleDocument.

    Rules are published once ``confidence_ms`` have passed since the first round; until then usage is only collected.
    """
    run = _start(store, now_ms)
    _feed(run)
    now_s = run.now_ms / 1000
    run.state.usage.expire(now_s)
    statistics = run.state.usage.build(now_s, run.now_ms)
    settings = operator_settings()
    rules, run.state.datasets = build_rules(run.before, run.state.datasets, statistics, settings)
    if run.now_ms - (run.seen.started_at_ms or run.now_ms) < confidence_ms:
        is_kept = _write(run, statistics, None, [])
        return RoundOutcome(version=None, segments=run.segments, is_late=not is_kept)
    changed = differences(run.before, rules, statistics, settings)
    if not _write(run, statistics, rules, changed):
        log.info("placement_round_was_late version=%d", rules.version)
        return RoundOutcome(version=None, segments=run.segments, is_late=True)
    _publish(store, rules, statistics)
    return RoundOutcome(
        version=rules.version, segments=run.segments, datasets=len(rules.datasets), changes=len(changed)
    )


def rules_of(head: RulesHead) -> PlacementRules:
    """Return the rules that a head holds; empty ones if there are none."""
    return decode_rules(bytes(head.document)) if head.document else PlacementRules()


def state_of(head: RulesHead) -> PlacementState:
    """Return the state for building rules; without one, a state derived from the rules so that nothing shrinks."""
    return decode_state(bytes(head.state)) if head.state else PlacementState()


def _start(store: ObjectStore, now_ms: int) -> _Round:
    head, _ = RulesHead.objects.get_or_create(id=1)
    before, stored, state = rules_of(head), _stored(SignedStore(store, settings.TOKEN_KEYS)), state_of(head)
    if stored is not None and stored.version > before.version:
        before = stored
    if not state.datasets:
        state.datasets = restore_states(before)
    # After a clock that went back, new rules must not look older than those that readers have.
    now_ms = max(now_ms, before.created_at_ms, head.built_at_ms)
    place = LogPlace(read_index=head.read_index, gaps=head.gaps)
    return _Round(seen=head, before=before, state=state, now_ms=now_ms, place=place, read_until_ms=head.read_until_ms)


def _feed(run: _Round) -> None:
    """Count the new segments, in order of time: an estimator ignores values older than its last."""
    indexes, run.place = entries_to_read(run.place, run.now_ms)
    for segment in segments_of(sorted(indexes)):
        run.read_until_ms = min(run.now_ms, max(run.read_until_ms, segment.at_ms))
        for sample in segment_samples(segment.meta):
            if sample.tenant:
                run.state.usage.add(sample, run.read_until_ms / 1000)
        run.segments += 1


def _write(
    run: _Round, statistics: PlacementStatistics, rules: PlacementRules | None, changed: list[RuleDifference]
) -> bool:
    """Write the round unless another builder has written one since it started; return whether it was written."""
    values = {
        "round": run.seen.round + 1,
        "statistics": encode_statistics(statistics),
        "state": encode_state(run.state),
        "started_at_ms": run.seen.started_at_ms or run.now_ms,
        "built_at_ms": run.now_ms,
        "read_index": run.place.read_index,
        "gaps": run.place.gaps,
        "read_until_ms": run.read_until_ms,
    }
    if rules is not None:
        values |= {"version": rules.version, "document": encode_rules(rules)}
    with transaction.atomic(durable=True):
        if not RulesHead.objects.filter(id=1, round=run.seen.round).update(**values):
            return False
        if rules is not None and (changed or not run.seen.version):
            _write_history(rules, statistics, changed)
    return True


def _write_history(rules: PlacementRules, statistics: PlacementStatistics, changed: list[RuleDifference]) -> None:
    at_ms = rules.created_at_ms
    RulesVersion.objects.create(
        version=rules.version,
        at_ms=at_ms,
        reason=_in_short(changed),
        dataset_count=len(rules.datasets),
        change_count=len(changed),
        usage_bytes=sum(found.usage() for found in statistics.datasets),
    )
    RuleChange.objects.bulk_create(
        [
            RuleChange(
                version=rules.version,
                at_ms=at_ms,
                tenant=one.key[0],
                dataset=one.key[1],
                before=rule_json(one.before),
                after=rule_json(one.after),
                reason=one.reason[:WHY_MAX],
            )
            for one in changed[:CHANGES_KEPT_MAX]
        ],
        batch_size=ROWS_PER_INSERT,
    )
    RuleChange.objects.filter(at_ms__lt=at_ms - HISTORY_KEPT_MS).delete()
    RulesVersion.objects.filter(version__lt=rules.version, at_ms__lt=at_ms - HISTORY_KEPT_MS).delete()


def _in_short(changed: list[RuleDifference]) -> str:
    named = [f"{'/'.join(one.key)}: {one.reason}" for one in changed[:REASONS_NAMED]]
    more = len(changed) - len(named)
    return (", ".join([*named, f"and {more} more"] if more > 0 else named) or "the first rules")[:WHY_MAX]


def _stored(store: SignedStore) -> PlacementRules | None:
    """Return the store's rules. Unsigned ones count as missing: the round replaces them."""
    try:
        return load_rules(store)
    except UnsignedDocument as error:
        log.warning("rules_replaced error=%s", error)
        return None


def _publish(store: ObjectStore, rules: PlacementRules, statistics: PlacementStatistics) -> None:
    """Write both documents; a failure of the statistics does not prevent the rules from being published."""
    signed = SignedStore(store, settings.TOKEN_KEYS)
    failure: StorageError | None = None
    try:
        publish_statistics(signed, statistics)
    except StorageError as error:
        failure = error
    newest = _stored(signed)
    if newest is None or newest.version < rules.version:
        publish_rules(signed, rules)
    if rules.version % VERSIONS_PER_TRIM == 0:
        trim_history(store, rules.version)
    if failure is not None:
        raise failure
