"""Operators' requests and answers in the OpenAPI schema; ``operation_messages`` validates them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from engine.schedule.limits import LimitName, ScopeKind
from engine.schedule.model import ParkedKind
from engine.schedule.pauses import PauseMode

LIMITS = [name.value for name in LimitName]
MODES = [mode.value for mode in PauseMode]
WALL_TIME = "wall time, unix milliseconds"
KINDS = ", ".join(kind.value for kind in ParkedKind)


class ScopeSerializer(serializers.Serializer[Any]):
    """What a limit or pause holds for."""

    kind = serializers.ChoiceField([kind.value for kind in ScopeKind])
    value = serializers.CharField(required=False, allow_blank=True, help_text="lane, tenant, level or job")


class OrderSerializer(serializers.Serializer[Any]):
    """Part of every order."""

    why = serializers.CharField(help_text="stands in the audit log")
    dry_run = serializers.BooleanField(required=False, help_text="only say what would be changed")


class ChangeLimitSerializer(OrderSerializer):
    """A limit to set."""

    limit = serializers.ChoiceField(LIMITS)
    scope = ScopeSerializer(required=False, help_text="default: everything")
    value = serializers.IntegerField(allow_null=True, help_text="null takes back what was set for the scope")
    for_seconds = serializers.IntegerField(required=False, allow_null=True, help_text="default: until further notice")


class LimitOutcomeSerializer(serializers.Serializer[Any]):
    """What it did: the values in force for the scope."""

    limit = serializers.ChoiceField(LIMITS)
    scope = ScopeSerializer()
    before = serializers.IntegerField()
    after = serializers.IntegerField()
    valid_until_ms = serializers.IntegerField(allow_null=True, help_text=f"{WALL_TIME}; null: until further notice")
    dry_run = serializers.BooleanField()
    command = serializers.IntegerField(allow_null=True, help_text="null if nothing was changed")
    notes = serializers.ListField(child=serializers.CharField())


class LimitSetSerializer(serializers.Serializer[Any]):
    """A limit as somebody set it."""

    id = serializers.IntegerField()
    limit = serializers.ChoiceField(LIMITS)
    scope = ScopeSerializer()
    value = serializers.IntegerField(allow_null=True)
    set_at_ms = serializers.IntegerField(help_text=WALL_TIME)
    valid_until_ms = serializers.IntegerField(allow_null=True, help_text=f"{WALL_TIME}; null: until further notice")
    superseded = serializers.BooleanField()
    actor = serializers.CharField()
    why = serializers.CharField()
    command = serializers.IntegerField()


class LimitListSerializer(serializers.Serializer[Any]):
    limits = LimitSetSerializer(many=True)


class ResumeSerializer(OrderSerializer):
    """A scope to let go on."""

    scope = ScopeSerializer(required=False, help_text="default: everything")


class PauseSerializer(ResumeSerializer):
    """A scope to hold still."""

    mode = serializers.ChoiceField(
        MODES,
        required=False,
        help_text="default: pause (nothing is planned or assigned); drain: scheduled jobs are still done",
    )
    for_seconds = serializers.IntegerField(required=False, allow_null=True)


class PauseOutcomeSerializer(serializers.Serializer[Any]):
    """What it did, and what stands in the scope now."""

    scope = ScopeSerializer()
    mode = serializers.ChoiceField(MODES, allow_null=True)
    valid_until_ms = serializers.IntegerField(allow_null=True, help_text=f"{WALL_TIME}; null: until further notice")
    dry_run = serializers.BooleanField()
    waiting_jobs = serializers.IntegerField()
    queued_blocks = serializers.IntegerField()
    command = serializers.IntegerField(allow_null=True)
    notes = serializers.ListField(child=serializers.CharField())


class PauseRowSerializer(serializers.Serializer[Any]):
    """A pause in force."""

    scope = ScopeSerializer()
    mode = serializers.ChoiceField(MODES)
    since_ms = serializers.IntegerField(help_text=WALL_TIME)
    valid_until_ms = serializers.IntegerField(allow_null=True, help_text=f"{WALL_TIME}; null: until further notice")
    actor = serializers.CharField()
    why = serializers.CharField()
    command = serializers.IntegerField()


class PauseListSerializer(serializers.Serializer[Any]):
    pauses = PauseRowSerializer(many=True)


class ParkedQuerySerializer(serializers.Serializer[Any]):
    """Which parked jobs to list."""

    error_class = serializers.CharField(required=False)
    lane = serializers.CharField(required=False)
    tenant = serializers.CharField(required=False, allow_blank=True)
    shard = serializers.IntegerField(required=False)
    level = serializers.IntegerField(required=False)
    kind = serializers.CharField(required=False, help_text=KINDS)


class JobFilterSerializer(ParkedQuerySerializer):
    """Which jobs are meant: those for which all that is given holds."""

    jobs = serializers.ListField(child=serializers.CharField(), required=False, help_text="names")
    all = serializers.BooleanField(required=False, help_text="all jobs are meant, if nothing else is given")


class JobOrderSerializer(OrderSerializer):
    """An order about jobs; the last three belong to requeue, requeue and pin."""

    filter = JobFilterSerializer()
    newer_build_only = serializers.BooleanField(required=False)
    keep_failures = serializers.BooleanField(required=False)
    worker = serializers.CharField(required=False)


class LeftSerializer(serializers.Serializer[Any]):
    """What an order left as it was."""

    job = serializers.CharField()
    reason = serializers.CharField()


class OutcomeSerializer(serializers.Serializer[Any]):
    """What an order did, or would do."""

    action = serializers.CharField()
    dry_run = serializers.BooleanField()
    changed = serializers.ListField(child=serializers.CharField())
    left = LeftSerializer(many=True)
    commands = serializers.ListField(child=serializers.IntegerField())
    notes = serializers.ListField(child=serializers.CharField())


class ParkedJobSerializer(serializers.Serializer[Any]):
    """A row of the register."""

    id = serializers.IntegerField()
    job = serializers.CharField()
    kind = serializers.CharField(help_text=KINDS)
    reason = serializers.CharField()
    error_class = serializers.CharField(allow_null=True)
    lane = serializers.CharField()
    tenant = serializers.CharField(allow_blank=True)
    shard = serializers.IntegerField()
    level = serializers.IntegerField()
    failures = serializers.IntegerField()
    attempts = serializers.IntegerField()
    bytes = serializers.IntegerField()
    blocks = serializers.ListField(child=serializers.CharField())


class ParkedListSerializer(serializers.Serializer[Any]):
    jobs = ParkedJobSerializer(many=True)


class IsolationStopSerializer(serializers.Serializer[Any]):
    """A stop of keeping bad sources of a place out."""

    lane = serializers.CharField()
    place = serializers.CharField()
    at_ms = serializers.IntegerField(help_text=WALL_TIME)
    reason = serializers.CharField()
    bad_sources = serializers.IntegerField()
    merged_sources = serializers.IntegerField()
    command = serializers.IntegerField()


class IsolationSerializer(serializers.Serializer[Any]):
    stops = IsolationStopSerializer(many=True)


class DecideIsolationSerializer(OrderSerializer):
    """What becomes of the sources of a place that could not be merged."""

    lane = serializers.CharField()
    place = serializers.CharField(required=False, allow_blank=True)
    decision = serializers.ChoiceField(choices=["retry", "quarantine"])


class QuarantineDecisionSerializer(OutcomeSerializer):
    """What a decision did, or would do."""

    lane = serializers.CharField()
    place = serializers.CharField()
    decision = serializers.CharField()


class BreakageSerializer(serializers.Serializer[Any]):
    """A build of which too many recent jobs failed with one error class."""

    build = serializers.CharField(allow_blank=True)
    error_class = serializers.CharField()
    failed_jobs = serializers.IntegerField()
    jobs = serializers.IntegerField()


class BreakageListSerializer(serializers.Serializer[Any]):
    breakages = BreakageSerializer(many=True)
