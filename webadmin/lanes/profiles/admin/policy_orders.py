"""The actions on level policies in the admin: forms that call one service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.lanes.profiles.jobs import KIND
from engine.lanes.profiles.plan.policy_rules import POLICY_RULES
from webadmin.adminkit.formatting import counted
from webadmin.adminkit.order_fields import number_field, text_field
from webadmin.adminkit.orders import OperatorOrder, OrderForm, Outcome
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.services.change_level_policy import (
    PREVIEW_JOBS,
    PolicyOutcome,
    change_level_policy,
    policy_numbers,
)
from webadmin.schedule.api.operation_messages import LEVEL_MAX
from webadmin.schedule.models import LANE_MAX
from webadmin.schedule.services.operation import Order

Values = Mapping[str, Any]
NUMBERS = tuple(POLICY_RULES)


def number_words(name: str) -> str:
    """Return the label of a number."""
    return name.replace("_max", " at most").replace("_seconds", " in seconds").replace("_", " ")


NumbersForm = type(
    "NumbersForm",
    (OrderForm,),
    {
        name: number_field(
            number_words(name).capitalize(), f"{rule.meaning.capitalize()}.", low=min(rule.low, 0), high=rule.high
        )
        for name, rule in POLICY_RULES.items()
    }
    | {"__doc__": "The numbers of a policy; those left empty keep their value.", "field_order": (*NUMBERS, "why")},
)


class PolicyForm(NumbersForm):  # type: ignore[valid-type,misc]  # built from POLICY_RULES
    """Lane, tenant and level of a policy, and its numbers."""

    tenant = text_field("Tenant", "Empty: everybody without a policy of their own, and segments.", TENANT_NAME_MAX)
    level = number_field("Level", "0 is segments.", low=0, high=LEVEL_MAX, required=True)
    lane = text_field("Lane", "Which kind of work.", LANE_MAX, required=True, initial=KIND)
    field_order = ("tenant", "level", "lane", *NUMBERS, "why")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanges:
    """The outcomes of one or several policies, as the action's page shows them."""

    outcomes: Sequence[PolicyOutcome]
    is_dry_run: bool

    def to_json(self) -> dict[str, Any]:
        """Return the changes by number, and in a dry run the jobs that polls would plan."""
        if not self.is_dry_run:
            return {"changed": [_place(one) for one in self.outcomes if one.command_index is not None]}
        told: dict[str, Any] = {"numbers": [row for one in self.outcomes for row in _numbers(one)]}
        told["notes"] = [note for one in self.outcomes for note in _notes(one)]
        told["planned_as_it_is"] = [_job(job) for one in self.outcomes for job in one.jobs_before]
        told["planned_with_these_numbers"] = [_job(job) for one in self.outcomes for job in one.jobs_after]
        return told


def _place(outcome: PolicyOutcome) -> str:
    return f"{outcome.lane} level {outcome.level} {outcome.tenant}".rstrip()


def _numbers(outcome: PolicyOutcome) -> list[dict[str, Any]]:
    before, after = outcome.before or {}, outcome.after or {}
    return [
        {
            "number": number_words(name).capitalize(),
            "before": before.get(name, "as everybody's"),
            "after": after.get(name, "as everybody's"),
        }
        for name in NUMBERS
        if before.get(name) != after.get(name)
    ]


def _notes(outcome: PolicyOutcome) -> list[str]:
    if outcome.before == outcome.after:
        return ["Nothing changes: these numbers hold already."]
    wait = "waits" if outcome.blocks == 1 else "wait"
    return [
        f"{counted(outcome.blocks, 'block')} in {counted(outcome.queues, 'queue')} {wait} under this policy.",
        f"A poll that could take {PREVIEW_JOBS} jobs would plan {_amount(outcome.jobs_before)} of them now as it is, "
        f"and {_amount(outcome.jobs_after)} with these numbers.",
    ]


def _amount(jobs: Sequence[Mapping[str, Any]]) -> str:
    return f"{counted(len(jobs), 'job')} of {counted(sum(len(job['sources']) for job in jobs), 'block')}"


def _job(job: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "job": job["job"],
        "tenant": job["tenant"] or "segments",
        "shard": job["shard"],
        "level": job["level"],
        "blocks": len(job["sources"]),
    }


def _order(values: Values, actor: str, is_dry_run: bool) -> Order:
    return Order(actor=actor, why=values["why"], is_dry_run=is_dry_run)


def _given(values: Values) -> dict[str, int]:
    return {name: values[name] for name in NUMBERS if values[name] is not None}


def _set(rows: Sequence[object], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    outcome = change_level_policy(
        lane=values["lane"],
        level=values["level"],
        tenant=values["tenant"],
        values=_given(values),
        order=_order(values, actor, is_dry_run),
    )
    return PolicyChanges(outcomes=[outcome], is_dry_run=is_dry_run)


def _change(rows: Sequence[LevelPolicy], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    return _each(rows, _given(values), _order(values, actor, is_dry_run))


def _take_back(rows: Sequence[LevelPolicy], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    return _each(rows, None, _order(values, actor, is_dry_run))


def _each(rows: Sequence[LevelPolicy], values: Mapping[str, int] | None, order: Order) -> PolicyChanges:
    outcomes = [
        change_level_policy(lane=row.lane, level=row.level, tenant=row.tenant, values=values, order=order)
        for row in rows
    ]
    return PolicyChanges(outcomes=outcomes, is_dry_run=order.is_dry_run)


CHANGE_POLICY = OperatorOrder(
    name="change",
    label="Change",
    about="Other numbers for the chosen policies, from the next poll on. Those left empty keep their value.",
    form=NumbersForm,
    give=_change,
    initial=lambda rows: policy_numbers(rows[0]) if len(rows) == 1 else {},
)
TAKE_POLICY_BACK = OperatorOrder(
    name="take-back",
    label="As everybody",
    about="Takes a tenant's own policy back, so that everybody's holds for it again.",
    give=_take_back,
    fits=lambda row: row.tenant != "",
)
SET_POLICY = OperatorOrder(
    name="set",
    label="Set a policy",
    about="For one tenant or everybody on one level. A tenant's first policy starts from everybody's numbers.",
    form=PolicyForm,
    give=_set,
    of_rows=False,
)

POLICY_ORDERS = (CHANGE_POLICY, TAKE_POLICY_BACK, SET_POLICY)
