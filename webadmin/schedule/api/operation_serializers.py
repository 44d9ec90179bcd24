"""Lists and outcomes of operators' actions in the OpenAPI schema."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from engine.schedule.limits import LimitName
from engine.schedule.model import ParkedKind
from engine.schedule.pauses import PauseMode
from webadmin.base.actions.action import OutcomeSerializer
from webadmin.schedule.action_fields import SCOPE

LIMITS = [name.value for name in LimitName]
MODES = [mode.value for mode in PauseMode]
WALL_TIME = "wall time, unix milliseconds"
KINDS = ", ".join(kind.value for kind in ParkedKind)


class LimitOutcomeSerializer(serializers.Serializer[Any]):
    """What it did: the values in force for the scope."""

    limit = serializers.ChoiceField(LIMITS)
    scope = SCOPE.serializer_class()()
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
    scope = SCOPE.serializer_class()()
    value = serializers.IntegerField(allow_null=True)
    set_at_ms = serializers.IntegerField(help_text=WALL_TIME)
    valid_until_ms = serializers.IntegerField(allow_null=True, help_text=f"{WALL_TIME}; null: until further notice")
    superseded = serializers.BooleanField()
    actor = serializers.CharField()
    why = serializers.CharField()
    command = serializers.IntegerField()


class LimitListSerializer(serializers.Serializer[Any]):
    limits = LimitSetSerializer(many=True)


class PauseOutcomeSerializer(serializers.Serializer[Any]):
    """What it did, and what stands in the scope now."""

    scope = SCOPE.serializer_class()()
    mode = serializers.ChoiceField(MODES, allow_null=True)
    valid_until_ms = serializers.IntegerField(allow_null=True, help_text=f"{WALL_TIME}; null: until further notice")
    dry_run = serializers.BooleanField()
    waiting_jobs = serializers.IntegerField()
    queued_blocks = serializers.IntegerField()
    command = serializers.IntegerField(allow_null=True)
    notes = serializers.ListField(child=serializers.CharField())


class PauseRowSerializer(serializers.Serializer[Any]):
    """A pause in force."""

    scope = SCOPE.serializer_class()()
    mode = serializers.ChoiceField(MODES)
    since_ms = serializers.IntegerField(help_text=WALL_TIME)
    valid_until_ms = serializers.IntegerField(allow_null=True, help_text=f"{WALL_TIME}; null: until further notice")
    actor = serializers.CharField()
    why = serializers.CharField()
    command = serializers.IntegerField()


class PauseListSerializer(serializers.Serializer[Any]):
    pauses = PauseRowSerializer(many=True)


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
