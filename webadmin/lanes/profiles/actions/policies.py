"""Operators' actions on level policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rest_framework import serializers

from engine.lanes.profiles.jobs import KIND
from engine.lanes.profiles.plan.policy_rules import POLICY_RULES
from webadmin.adminkit.formatting import counted
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.actions.action import OperatorAction
from webadmin.base.actions.fields import Group, Number, Text, serializer_of
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.services.change_level_policy import (
    PREVIEW_JOBS,
    PolicyOutcome,
    change_level_policy,
    policy_numbers,
)
from webadmin.schedule.action_fields import LEVEL_MAX
from webadmin.schedule.models import LANE_MAX


def number_words(name: str) -> str:
    """Return the label of a number."""
    return name.replace("_max", " at most").replace("_seconds", " in seconds").replace("_", " ")


TENANT = Text(
    "tenant", "Tenant", "Empty: all tenants without their own policy, and segments.", length_max=TENANT_NAME_MAX
)
LEVEL = Number("level", "Level", "0 is segments.", high=LEVEL_MAX, is_required=True)
LANE = Text("lane", "Lane", "Name of the lane.", length_max=LANE_MAX, default=KIND)
NUMBERS = Group(
    "numbers",
    "Numbers",
    "Omitted values are unchanged; null removes the policy of a tenant.",
    component="PolicyNumbers",
    fields=tuple(
        Number(
            name, number_words(name).capitalize(), f"{rule.meaning.capitalize()}.", low=min(rule.low, 0), high=rule.high
        )
        for name, rule in POLICY_RULES.items()
    ),
    make=lambda **given: {name: value for name, value in given.items() if value is not None},
    is_required=True,
    is_nullable=True,
)
PolicyPlaceSerializer = serializer_of("PolicyPlaceSerializer", (LANE, LEVEL, TENANT), "Whose policy.")


class PolicyOutcomeSerializer(PolicyPlaceSerializer):  # type: ignore[valid-type,misc]  # built from the fields of the action
    """The change; the jobs are, in a dry run, what a poll would plan now."""

    before = NUMBERS.serializer()
    after = NUMBERS.serializer()
    queues = serializers.IntegerField()
    blocks = serializers.IntegerField()
    dry_run = serializers.BooleanField()
    jobs_before = serializers.ListField(child=serializers.DictField())
    jobs_after = serializers.ListField(child=serializers.DictField())
    command = serializers.IntegerField(allow_null=True, help_text="null if nothing was changed")


def _described(outcomes: Sequence[PolicyOutcome], is_dry_run: bool) -> dict[str, Any]:
    """Return the changes by number, and in a dry run the jobs that polls would plan."""
    if not is_dry_run:
        return {"changed": [_place(one) for one in outcomes if one.command_index is not None]}
    return {
        "numbers": [row for one in outcomes for row in _numbers(one)],
        "notes": [note for one in outcomes for note in _notes(one)],
        "planned_as_it_is": [_job(job) for one in outcomes for job in one.jobs_before],
        "planned_with_these_numbers": [_job(job) for one in outcomes for job in one.jobs_after],
    }


def _place(outcome: PolicyOutcome) -> str:
    return f"{outcome.lane} level {outcome.level} {outcome.tenant}".rstrip()


def _numbers(outcome: PolicyOutcome) -> list[dict[str, Any]]:
    before, after = outcome.before or {}, outcome.after or {}
    return [
        {
            "number": number_words(name).capitalize(),
            "before": before.get(name, "value for all tenants"),
            "after": after.get(name, "value for all tenants"),
        }
        for name in POLICY_RULES
        if before.get(name) != after.get(name)
    ]


def _notes(outcome: PolicyOutcome) -> list[str]:
    if outcome.before == outcome.after:
        return ["No changes: the policy already has these values."]
    wait = "waits" if outcome.blocks == 1 else "wait"
    return [
        f"{counted(outcome.blocks, 'block')} in {counted(outcome.queues, 'queue')} {wait} under this policy.",
        f"A poll that could take {PREVIEW_JOBS} jobs would now plan {_amount(outcome.jobs_before)} "
        f"under the current policy and {_amount(outcome.jobs_after)} under the new one.",
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


def _places(rows: Sequence[LevelPolicy]) -> list[dict[str, Any]]:
    return [{"lane": row.lane, "level": row.level, "tenant": row.tenant} for row in rows]


SET_POLICY = OperatorAction(
    name="set",
    operation="change_level_policy",
    label="Set a policy",
    about="Sets the policy of a level for one or all tenants. A new policy of a tenant starts with the values for all.",
    targets=(TENANT, LEVEL, LANE),
    fields=(NUMBERS,),
    apply=lambda values, context: change_level_policy(
        **{name: values[name] for name in ("lane", "level", "tenant")}, values=values["numbers"], context=context
    ),
    outcome=PolicyOutcomeSerializer,
    describe=_described,
)
CHANGE_POLICY = replace(
    SET_POLICY,
    name="change",
    label="Change",
    about="Changes the selected policies from the next poll on. Empty fields keep their value.",
    of_rows=_places,
    initial=lambda rows: policy_numbers(rows[0]) if len(rows) == 1 else {},
)
REMOVE_POLICY = replace(
    SET_POLICY,
    name="remove",
    label="Use the default",
    about="Removes the policy of a tenant; the policy for all tenants then applies.",
    fields=(),
    of_rows=lambda rows: [{**place, "numbers": None} for place in _places(rows)],
    fits=lambda row: row.tenant != "",
)

POLICY_ACTIONS = (CHANGE_POLICY, REMOVE_POLICY, SET_POLICY)
