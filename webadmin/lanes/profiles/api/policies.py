"""Level policies over HTTP: list and change them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from webadmin.base.actions.api import ERRORS, OperatorView, post_action
from webadmin.lanes.profiles.actions.policies import NUMBERS, SET_POLICY, PolicyPlaceSerializer
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.services.change_level_policy import policy_numbers


class PolicyRowSerializer(PolicyPlaceSerializer):  # type: ignore[valid-type,misc]  # built from the fields of the action
    """A policy in force."""

    numbers = NUMBERS.serializer_class()()


class PolicyListSerializer(serializers.Serializer[Any]):
    policies = PolicyRowSerializer(many=True)


class LevelPoliciesView(OperatorView):
    """When the blocks of a level make a job."""

    post = post_action(SET_POLICY)

    @extend_schema(operation_id="list_level_policies", responses={200: PolicyListSerializer, **ERRORS})
    def get(self, request: Request) -> Response:
        """List the policies of everybody and of single tenants."""
        rows = [
            {"lane": row.lane, "level": row.level, "tenant": row.tenant, "numbers": policy_numbers(row)}
            for row in LevelPolicy.objects.all()
        ]
        return Response({"policies": rows})
