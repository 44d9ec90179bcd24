"""The form of the API's progress answers in the OpenAPI schema; ``to_json`` builds the answers."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class ExplanationSerializer(serializers.Serializer[Any]):
    """One thing, its state, and the sentence about it."""

    subject = serializers.CharField()
    state = serializers.CharField()
    why = serializers.CharField()
    next = serializers.CharField(allow_blank=True)
    sentence = serializers.CharField()


class ExplanationsSerializer(serializers.Serializer[Any]):
    """What the name means: usually one thing."""

    explanations = ExplanationSerializer(many=True)


class ProgressRowSerializer(serializers.Serializer[Any]):
    """Backlog, rates per second and outlook of one tenant and level, one shard, or everything."""

    tenant = serializers.CharField(required=False, allow_blank=True)
    level = serializers.IntegerField(required=False)
    shard = serializers.IntegerField(required=False)
    blocks = serializers.IntegerField()
    bytes = serializers.IntegerField()
    jobs = serializers.IntegerField()
    due_blocks = serializers.IntegerField()
    paused_blocks = serializers.IntegerField(help_text="of the due: held by an operator's pause")
    parked_jobs = serializers.IntegerField()
    parked_blocks = serializers.IntegerField()
    arrivals_per_second = serializers.FloatField()
    arrival_bytes_per_second = serializers.FloatField()
    drained_per_second = serializers.FloatField()
    drained_bytes_per_second = serializers.FloatField()
    dropped_per_second = serializers.FloatField(
        help_text="of the drained: dropped unmerged, by retention or on request"
    )
    jobs_per_second = serializers.FloatField()
    clear = serializers.ChoiceField(choices=["clear", "shrinks", "never", "unknown", "paused"])
    clear_seconds = serializers.FloatField(allow_null=True)
    clear_words = serializers.CharField()


class LaneRowSerializer(serializers.Serializer[Any]):
    """What waits in a lane before it is on the schedule: chunks of a table, branches of a repository."""

    lane = serializers.CharField()
    tenant = serializers.CharField()
    name = serializers.CharField()
    count = serializers.IntegerField()
    unit = serializers.CharField()
    bytes = serializers.IntegerField(allow_null=True)
    clear_words = serializers.CharField()


class BacklogSerializer(serializers.Serializer[Any]):
    """The whole report."""

    window_seconds = serializers.FloatField()
    counted_ms_ago = serializers.IntegerField(allow_null=True)
    backlog_work_seconds = serializers.FloatField()
    total = ProgressRowSerializer()
    tenants = ProgressRowSerializer(many=True)
    shards = ProgressRowSerializer(many=True)
    lanes = LaneRowSerializer(many=True)
