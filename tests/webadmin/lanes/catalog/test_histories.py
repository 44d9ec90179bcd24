"""Random histories of several branches beside a dictionary for each, through the services and the database.

A compaction and a commit go step by step, so that everything else comes between; both may die. After each step what is
visible, committed and uncommitted is what the dictionaries say. ``LITHIFY_HISTORIES=20000`` plays as many, in portions
that ``-n`` shares out.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from engine.lanes.catalog.plan.branch import BranchRecord
from engine.lanes.catalog.three_way import MergeConflict, Side
from tests.memory_store import MemoryStore
from tests.webadmin.lanes.catalog.short import CONTEXT, SAID, Catalog, new_catalog
from webadmin.lanes.catalog import places
from webadmin.lanes.catalog.errors import DirtyBranch, EntryMissing, NothingToCommit, NothingToMerge, PreconditionFailed
from webadmin.lanes.catalog.models import BranchToken, StagedEntry, StagedInterval
from webadmin.lanes.catalog.services.branches import find_branch
from webadmin.lanes.catalog.services.commits import merge_base
from webadmin.lanes.catalog.services.move_heads import hard_reset, revert_commit
from webadmin.lanes.catalog.services.records import read_record, seal_branch
from webadmin.lanes.catalog.services.reset_branch import reset_branch, reset_key, reset_prefix
from webadmin.lanes.catalog.services.write_objects import delete_prefix
from webadmin.lanes.catalog.states import TokenState, Why

HISTORIES = int(os.environ.get("LITHIFY_HISTORIES") or 4)
PORTION = 500
STEPS = 25
OTHERS_LOOKED_AT = 0.2
KEYS = ("a", "a/1", "a/2", "b", "b/1", "c")
PREFIXES = ("", "a", "a/", "b", "z")
BRANCHES = ("main", "work")
State = dict[str, str]


@dataclass
class Model:
    """What every branch must show."""

    committed: State = field(default_factory=dict)
    visible: State = field(default_factory=dict)


@dataclass
class History:
    """A repository, its dictionaries, and compactions that have sealed and not built yet."""

    catalog: Catalog
    draw: random.Random
    models: dict[str, Model] = field(default_factory=lambda: {name: Model() for name in BRANCHES})
    sealed: list[BranchRecord] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def step(self) -> None:
        """Do something, and see that it is what it should be."""
        action = self.draw.choices([each for each, _ in ACTIONS], [weight for _, weight in ACTIONS])[0]
        name = self.draw.choice(BRANCHES)
        self.told.append(f"{action.__name__} {name}")
        action(self, name, self.models[name])
        self.check(name)

    def check(self, touched: str) -> None:
        """Compare what can be read with the dictionaries: all of the branch that was touched, of the others what is
        visible, and now and then the rest."""
        for name, model in self.models.items():
            assert self.catalog.visible(name, amount=self.draw.randint(1, 4)) == model.visible, self.told
            key = self.draw.choice(KEYS)
            assert self.point(name, key) == model.visible.get(key), self.told
            if name == touched or self.draw.random() < OTHERS_LOOKED_AT:
                assert self.catalog.committed(name) == model.committed, self.told
                assert self.catalog.diff(name) == differences(model.committed, model.visible), self.told

    def point(self, name: str, key: str) -> str | None:
        try:
            return self.catalog.get(key, name)
        except EntryMissing:
            return None

    def key(self) -> str:
        return self.draw.choice(KEYS)


def differences(before: State, after: State) -> list[tuple[str, str]]:
    keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return [("added" if key not in before else "changed" if key in after else "removed", key) for key in keys]


def put(history: History, name: str, model: Model) -> None:
    key, letter = history.key(), history.draw.choice("xyz")
    history.catalog.put(key, letter, name)
    model.visible[key] = letter


def put_if(history: History, name: str, model: Model) -> None:
    key, letter, match = history.key(), history.draw.choice("xyz"), history.draw.choice(["x", None])
    condition = {"if_absent": True} if match is None else {"if_match": match}
    if model.visible.get(key) == match:
        history.catalog.put(key, letter, name, **condition)
        model.visible[key] = letter
    else:
        with pytest.raises(PreconditionFailed):
            history.catalog.put(key, letter, name, **condition)


def delete(history: History, name: str, model: Model) -> None:
    key = history.key()
    history.catalog.delete(key, name)
    model.visible.pop(key, None)


def delete_all(history: History, name: str, model: Model) -> None:
    prefix = history.draw.choice(PREFIXES)
    delete_prefix(history.catalog.repository, name, prefix.encode(), context=CONTEXT)
    model.visible = {key: letter for key, letter in model.visible.items() if not key.startswith(prefix)}


def reset(history: History, name: str, model: Model) -> None:
    reset_branch(history.catalog.repository, name, context=CONTEXT)
    model.visible = dict(model.committed)


def reset_one(history: History, name: str, model: Model) -> None:
    key = history.key()
    reset_key(history.catalog.repository, name, key.encode())
    model.visible.pop(key, None)
    if key in model.committed:
        model.visible[key] = model.committed[key]


def reset_some(history: History, name: str, model: Model) -> None:
    prefix = history.draw.choice(PREFIXES)
    reset_prefix(history.catalog.repository, name, prefix.encode(), context=CONTEXT)
    kept = {key: letter for key, letter in model.visible.items() if not key.startswith(prefix)}
    model.visible = kept | {key: letter for key, letter in model.committed.items() if key.startswith(prefix)}


def commit(history: History, name: str, model: Model) -> None:
    is_allowed = history.draw.random() < 0.2
    if model.visible == model.committed and not is_allowed:
        with pytest.raises(NothingToCommit):
            history.catalog.commit(name)
        return
    history.catalog.commit(name, allow_empty=is_allowed)
    model.committed = dict(model.visible)


def dead_commit(history: History, name: str, model: Model) -> None:
    """A commit that died behind its first phase."""
    seal_branch(int(history.catalog.record(name).uid), why=Why.COMMIT)


def begin_compaction(history: History, name: str, model: Model) -> None:
    record = seal_branch(int(history.catalog.record(name).uid), why=Why.COMPACTION)
    assert record is not None
    history.sealed.append(record)


def end_compaction(history: History, name: str, model: Model) -> None:
    """Build and publish what was sealed some time ago, if the rows are still there: that is what the grace is for."""
    if not history.sealed:
        return
    record = history.sealed.pop(history.draw.randrange(len(history.sealed)))
    now = read_record(int(record.uid))
    if now and set(record.sealed) <= set(now.sealed):
        history.catalog.fold(record)


def compact(history: History, name: str, model: Model) -> None:
    history.catalog.compact(name)


def merge(history: History, name: str, model: Model) -> None:
    source = next(other for other in BRANCHES if other != name)
    theirs, side = history.models[source].committed, history.draw.choice([None, Side.SOURCE, Side.DESTINATION])
    base = history.catalog.visible(base_of(history, source, name))
    merged, conflicts = merged_states(base, model.committed, theirs, side)
    try:
        history.catalog.merge(source, name, strategy=side)
    except DirtyBranch:
        assert model.visible != model.committed
    except NothingToMerge:
        assert theirs == base
    except MergeConflict as error:
        conflicts ^= {key.decode() for key in error.keys}
        assert not conflicts
    else:
        assert model.visible == model.committed
        assert not conflicts
        model.committed, model.visible = dict(merged), dict(merged)


def base_of(history: History, source: str, name: str) -> str:
    found = merge_base(history.catalog.repository, history.catalog.head(name), history.catalog.head(source))
    assert found is not None
    return found.commit_id


def merged_states(base: State, ours: State, theirs: State, side: Side | None) -> tuple[State, set[str]]:
    merged, conflicts = dict(ours), set()
    for key in base.keys() | theirs.keys():
        if theirs.get(key) == base.get(key) or ours.get(key) == theirs.get(key):
            continue
        if ours.get(key) != base.get(key) and side is not Side.SOURCE:
            if side is None:
                conflicts.add(key)
            continue
        merged.pop(key, None)
        if key in theirs:
            merged[key] = theirs[key]
    return dict(sorted(merged.items())), conflicts


def revert(history: History, name: str, model: Model) -> None:
    head = history.catalog.head(name)
    if len(head.parents) != 1:
        return
    before = history.catalog.visible(head.parents[0])
    try:
        revert_commit(history.catalog.repository, name, head.commit_id, SAID, context=CONTEXT)
    except DirtyBranch:
        assert model.visible != model.committed
    except NothingToMerge:
        assert before == model.committed
    else:
        model.committed, model.visible = dict(before), dict(before)


def go_back(history: History, name: str, model: Model) -> None:
    head = history.catalog.head(name)
    if head.parents:
        hard_reset(history.catalog.repository, name, f"{name}~1", force=True, context=CONTEXT)
        model.committed = history.catalog.visible(head.parents[0])
        model.visible = dict(model.committed)


def sweep(history: History, name: str, model: Model) -> None:
    """Delete the rows of retired tokens, at once."""
    branches = [find_branch(history.catalog.repository, name).pk for name in BRANCHES]
    own = BranchToken.objects.filter(branch_id__in=branches)
    retired = list(own.filter(state=TokenState.RETIRED).values_list("pk", flat=True))
    StagedEntry.objects.filter(token_id__in=retired).delete()
    StagedInterval.objects.filter(token_id__in=retired).delete()


Action = Callable[[History, str, Model], None]
ACTIONS: list[tuple[Action, int]] = [
    (put, 10),
    (put_if, 4),
    (delete, 8),
    (delete_all, 2),
    (reset, 1),
    (reset_one, 3),
    (reset_some, 2),
    (commit, 5),
    (dead_commit, 2),
    (begin_compaction, 3),
    (end_compaction, 4),
    (compact, 2),
    (merge, 5),
    (revert, 2),
    (go_back, 1),
    (sweep, 4),
]


@pytest.mark.timeout(0 if HISTORIES > PORTION else 120)
@pytest.mark.parametrize("first", range(0, HISTORIES, PORTION))
def test_random_histories_agree_with_dictionaries(first: int, db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    monkeypatch.setattr(places, "catalog_store", lambda: store)
    for seed in range(first, min(first + PORTION, HISTORIES)):
        catalog = new_catalog(name=f"history-{seed}")
        catalog.branch("work")
        history = History(catalog, random.Random(seed))
        try:
            for _ in range(STEPS):
                history.step()
        except Exception as error:
            raise AssertionError(f"history {seed}: {history.told}") from error
