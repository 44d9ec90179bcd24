"""The action of operators on push limits."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.actions.action import OperatorAction
from webadmin.base.actions.fields import Choice, Number, Text
from webadmin.ingest.services.change_push_limit import change_push_limit
from webadmin.ingest.tenant_limits import HIGHEST, PushLimitName

NAMES = [name.value for name in PushLimitName]
LIMIT = Choice(
    "limit",
    "Limit",
    choices=tuple((name.value, name.value.replace("_", " ")) for name in PushLimitName),
    make=PushLimitName,
    is_required=True,
)
TENANT = Text("tenant", "Tenant", "Empty: all tenants without their own limit.", length_max=TENANT_NAME_MAX)
VALUE = Number(
    "value",
    "Value",
    "Empty: remove the limit. Sizes in bytes of uncompressed pprof.",
    high=max(HIGHEST.values()),
    is_required=True,
    is_nullable=True,
)


class PushLimitOutcomeSerializer(serializers.Serializer[Any]):
    """What is in force before and after."""

    limit = serializers.CharField()
    tenant = serializers.CharField(allow_blank=True)
    before = serializers.IntegerField()
    after = serializers.IntegerField()
    dry_run = serializers.BooleanField()
    changed = serializers.BooleanField()


SET_PUSH_LIMIT = OperatorAction(
    name="set-push-limit",
    operation="change_push_limit",
    label="Set a push limit",
    about="Sets a push limit. Web processes apply it within 5 seconds; previous values are kept as history.",
    fields=(LIMIT, TENANT, VALUE),
    apply=lambda values, context: change_push_limit(
        tenant=values["tenant"],
        name=values["limit"],
        value=values["value"],
        actor=context.actor,
        why=context.why,
        is_dry_run=context.is_dry_run,
    ),
    outcome=PushLimitOutcomeSerializer,
)
