"""Which files and tokens may go, and that no file of a build goes, whenever it is looked at."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.lanes.catalog.plan.orphans import (
    CondemnedFile,
    FileSweep,
    RetiredToken,
    StoredFile,
    is_publishable,
    plan_sweep,
    tokens_to_sweep,
)

GRACE = 10.0


def sweep(stored: dict[str, float], listed: dict[str, CondemnedFile], reachable: set[str], now: float) -> FileSweep:
    files = [StoredFile(id_, written_at) for id_, written_at in stored.items()]
    return plan_sweep(files, listed.values(), reachable, written_before=now - GRACE, condemned_before=now - GRACE)


def test_an_old_file_that_nothing_reaches_is_condemned_and_deleted_later() -> None:
    stored = {"root": 1.0, "lost": 1.0, "young": 95.0}
    assert sweep(stored, {}, {"root"}, 100.0) == FileSweep(("lost",), (), ())
    listed = {"lost": CondemnedFile("lost", 100.0)}
    assert sweep(stored, listed, {"root"}, 105.0) == FileSweep((), (), ())
    assert sweep(stored, listed, {"root", "lost"}, 120.0) == FileSweep(("young",), ("lost",), ())
    assert sweep(stored, listed, {"root", "young"}, 120.0) == FileSweep((), (), ("lost",))
    marked = {"lost": CondemnedFile("lost", 100.0, is_marked=True)}
    assert sweep(stored, marked, {"root", "young"}, 120.0).deleted == ("lost",)


def test_a_build_with_a_file_whose_deletion_it_may_have_met_is_refused() -> None:
    listed = [CondemnedFile("a", 1.0), CondemnedFile("b", 1.0, is_marked=True), CondemnedFile("c", 1.0, True, 5.0)]
    assert is_publishable({"a", "d"}, listed, begun_at=9.0)
    assert not is_publishable({"a", "b"}, listed, begun_at=9.0)
    assert [is_publishable({"c"}, listed, begun_at=begun) for begun in (4.0, 5.0, 6.0)] == [False, False, True]


def test_a_deleted_file_is_forgotten_when_no_build_is_older() -> None:
    listed = [CondemnedFile("f", 1.0, True, 50.0)]
    for begun, forgotten in (([], ("f",)), ([60.0, 51.0], ("f",)), ([60.0, 50.0], ())):
        found = plan_sweep([], listed, set(), begun, written_before=90.0, condemned_before=90.0)
        assert (found.forgotten, found.deleted) == (forgotten, ())


def test_what_was_put_since_an_open_build_began_is_not_condemned() -> None:
    stored = [StoredFile("before", 19.0), StoredFile("at-once", 21.0), StoredFile("late", 60.0)]
    for begun, apart, condemned in (
        ((), 0.0, ("at-once", "before", "late")),
        ((20.0, 50.0), 0.0, ("before",)),
        ((20.0, 50.0), 5.0, ()),
    ):
        limits = {"written_before": 90.0, "condemned_before": 90.0, "clock_skew_s": apart}
        assert plan_sweep(stored, [], set(), begun, **limits).condemned == condemned


EVENTS = ["begin", "put", "publish", "retire", "look", "mark", "delete", "told", "wait", "given up"]


@dataclass
class Catalog:
    """A build and a sweep of one file, step by step: each step is a transaction or a request to the store."""

    stored: dict[str, float] = field(default_factory=dict)
    listed: dict[str, CondemnedFile] = field(default_factory=dict)
    reachable: set[str] = field(default_factory=set)
    due: FileSweep = field(default_factory=lambda: FileSweep((), (), ()))
    begun: float | None = None
    has_row: bool = False
    is_put: bool = False
    is_gone: bool = False
    now: float = 0.0

    def build(self, event: str, *, checks: bool, asks_row: bool) -> None:
        if event == "begin":
            self.begun, self.has_row, self.is_put = self.now, True, False
        elif event == "given up":
            self.has_row = False
        elif event == "put" and self.begun is not None:
            self.stored["f"], self.is_put = self.now, True
        elif event == "publish" and self.begun is not None and self.is_put:
            is_known = self.has_row or not asks_row
            if is_known and (not checks or is_publishable({"f"}, self.listed.values(), begun_at=self.begun)):
                self.listed.pop("f", None)
                self.reachable.add("f")
            self.begun, self.has_row = None, False
        elif event == "retire":
            self.reachable.discard("f")

    def sweep(self, event: str) -> None:
        row = self.listed.get("f")
        if event == "look":
            files = [StoredFile(id_, at) for id_, at in self.stored.items()]
            begun = [self.begun] if self.begun is not None and self.has_row else []
            limits = {"written_before": self.now - GRACE, "condemned_before": self.now - GRACE}
            self.due = plan_sweep(files, self.listed.values(), self.reachable, begun, **limits)
            self.listed |= {id_: CondemnedFile(id_, self.now) for id_ in self.due.condemned}
            for id_ in (*self.due.spared, *self.due.forgotten):
                del self.listed[id_]
        elif event == "mark" and row and "f" in self.due.deleted and not row.is_marked:
            # What was published since the look has left the list: only a row that is still there is marked.
            self.listed["f"], self.is_gone = replace(row, is_marked=True), False
        elif event == "delete" and row and row.is_marked and row.deleted_at is None:
            self.stored.pop("f", None)
            self.is_gone = True
        elif event == "told" and row and row.is_marked and row.deleted_at is None and self.is_gone:
            self.listed["f"] = replace(row, deleted_at=self.now)
        elif event == "wait":
            self.now += GRACE

    def play(self, events: list[str], *, checks: bool = True, asks_row: bool = True) -> bool:
        """Return whether what was published was always there."""
        for event in events:
            self.now += 1
            self.build(event, checks=checks, asks_row=asks_row)
            self.sweep(event)
            if not self.reachable <= self.stored.keys():
                return False
        return True


@given(st.lists(st.sampled_from(EVENTS), max_size=60))
@settings(max_examples=300, deadline=None)
def test_in_any_order_what_was_published_is_there(events: list[str]) -> None:
    assert Catalog().play(events)


def test_in_many_random_orders_too_and_not_without_the_checks() -> None:
    draw = random.Random(8)
    orders = [draw.choices(EVENTS, k=80) for _ in range(2_000)]
    assert all(Catalog().play(events) for events in orders)
    assert not all(Catalog().play(events, checks=False) for events in orders)
    assert not all(Catalog().play(events, asks_row=False) for events in orders)


def test_only_tokens_that_no_record_and_no_build_names_are_swept() -> None:
    retired = [RetiredToken(name, at) for name, at in (("a", 1.0), ("b", 1.0), ("young", 9.0))]
    assert tokens_to_sweep(retired, {"a"}, before=5.0) == ["b"]
