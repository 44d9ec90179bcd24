"""Level policies over HTTP: list and change them; the same service as the admin and the command."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from engine.lanes.profiles.plan.policy_rules import POLICY_RULES
from engine.protocol.fields import COUNT_MAX, Fields
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.services.change_level_policy import change_level_policy, policy_numbers
from webadmin.schedule.api.operation_messages import LEVEL_MAX
from webadmin.schedule.api.operation_serializers import OrderSerializer
from webadmin.schedule.api.operations import ERRORS, OperatorView
from webadmin.schedule.models import LANE_MAX

PolicyNumbersSerializer = type(
    "PolicyNumbersSerializer",
    (serializers.Serializer,),
    {
        name: serializers.IntegerField(required=False, help_text=f"{rule.meaning} ({rule.low} to {rule.high})")
        for name, rule in POLICY_RULES.items()
    }
    | {"__doc__": "The numbers of a policy; those that are not given keep their value."},
)


class PolicyPlaceSerializer(serializers.Serializer[Any]):
    """Whose policy."""

    lane = serializers.CharField(required=False, help_text="default: profiles")
    level = serializers.IntegerField(min_value=0)
    tenant = serializers.CharField(required=False, allow_blank=True, help_text="default: everybody without their own")


class PolicyRowSerializer(PolicyPlaceSerializer):
    """A policy in force."""

    numbers = PolicyNumbersSerializer()


class PolicyListSerializer(serializers.Serializer[Any]):
    policies = PolicyRowSerializer(many=True)


class ChangePolicySerializer(PolicyPlaceSerializer, OrderSerializer):
    """A policy to change."""

    numbers = PolicyNumbersSerializer(allow_null=True, help_text="null takes a tenant's own policy back")


class PolicyOutcomeSerializer(PolicyPlaceSerializer):
    """What it did; the jobs are what a poll would plan now, of a dry run."""

    before = PolicyNumbersSerializer(allow_null=True)
    after = PolicyNumbersSerializer(allow_null=True)
    queues = serializers.IntegerField()
    blocks = serializers.IntegerField()
    dry_run = serializers.BooleanField()
    jobs_before = serializers.ListField(child=serializers.DictField())
    jobs_after = serializers.ListField(child=serializers.DictField())
    command = serializers.IntegerField(allow_null=True, help_text="null if nothing was changed")


class LevelPoliciesView(OperatorView):
    """When the blocks of a level make a job."""

    @extend_schema(operation_id="list_level_policies", responses={200: PolicyListSerializer, **ERRORS})
    def get(self, request: Request) -> Response:
        """List the policies of everybody and of single tenants."""
        rows = [
            {"lane": row.lane, "level": row.level, "tenant": row.tenant, "numbers": policy_numbers(row)}
            for row in LevelPolicy.objects.all()
        ]
        return Response({"policies": rows})

    @extend_schema(
        operation_id="change_level_policy",
        request=ChangePolicySerializer,
        responses={200: PolicyOutcomeSerializer, **ERRORS},
    )
    def post(self, request: Request) -> Response:
        """Change the numbers of a level, for everybody or for one tenant; or preview what would be planned."""
        fields, order = self.read(ChangePolicySerializer)
        numbers = fields.optional("numbers")
        if numbers is None and "numbers" not in fields.values:
            raise fields.error("numbers", "numbers to set, or null to take a tenant's own policy back")
        outcome = change_level_policy(
            lane=fields.text("lane", LANE_MAX, default="profiles"),
            level=fields.integer("level", 0, LEVEL_MAX),
            tenant=fields.text("tenant", TENANT_NAME_MAX, default=""),
            values=None if numbers is None else {name: _number(numbers, name) for name in numbers.values},
            order=order,
        )
        return Response(outcome.to_json())


def _number(fields: Fields, name: str) -> int:
    return fields.integer(name, 0, COUNT_MAX)
