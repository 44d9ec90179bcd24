"""Budgets of tenants whose names may be invented: what is remembered, what is forgotten, what is shared."""

from __future__ import annotations

from webadmin.ingest.tenant_budget import SERIES_ACTIVE_S, SWEEP_S, TenantBudgets
from webadmin.ingest.tenant_limits import TenantPushLimits

LIMITS = TenantPushLimits(bytes_per_second=1, burst_bytes=100, series_max=2)


def test_invented_names_do_not_give_a_spent_budget_back() -> None:
    budgets = TenantBudgets(tenants_max=10)
    assert budgets.may_send("acme", 100, LIMITS, 0.0)
    for number in range(1_000):
        budgets.may_send(f"invented-{number}", 1, LIMITS, 0.0)
    assert not budgets.may_send("acme", 100, LIMITS, 0.0)


def test_names_beyond_the_table_share_one_budget() -> None:
    budgets = TenantBudgets(tenants_max=2)
    for name in ("a", "b"):
        assert budgets.may_send(name, 100, LIMITS, 0.0)
    assert budgets.may_send("c", 60, LIMITS, 0.0)
    assert not budgets.may_send("d", 60, LIMITS, 0.0)
    budgets.charge("e", 50)
    assert not budgets.may_read("f", LIMITS, 0.0)


def test_a_full_budget_makes_room() -> None:
    budgets = TenantBudgets(tenants_max=2)
    budgets.may_send("a", 1, LIMITS, 0.0)
    budgets.may_send("b", 100, LIMITS, 0.0)
    assert budgets.may_send("c", 100, LIMITS, SWEEP_S + 1)  # in the place of a, which is full again
    assert not budgets.may_send("c", 100, LIMITS, SWEEP_S + 1)
    assert not budgets.may_send("b", 100, LIMITS, SWEEP_S + 1)


def test_active_series_are_not_forgotten_for_invented_names() -> None:
    budgets = TenantBudgets(tenants_max=3)
    assert budgets.admit_series("acme", [1, 2, 3], 2, 0.0) == [True, True, False]
    for number in range(100):
        budgets.admit_series(f"invented-{number}", [1], 2, 10.0)
    assert budgets.admit_series("acme", [3], 2, 20.0) == [False]
    assert budgets.admit_series("late", [8, 9], 2, 20.0) == [True, False]  # with the other invented names
    silent = 10.0 + 2 * SERIES_ACTIVE_S
    assert budgets.admit_series("late", [8], 2, silent) == [True]
    assert budgets.admit_series("late", [8, 9, 10], 2, silent) == [True, True, False]
