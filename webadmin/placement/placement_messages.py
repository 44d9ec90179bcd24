"""Lists and outcomes of placement in the OpenAPI schema."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from webadmin.placement.placement_fields import LIMITS, OVERRIDE


class DatasetPlaceSerializer(serializers.Serializer[Any]):
    """A dataset of a tenant."""

    tenant = serializers.CharField()
    dataset = serializers.CharField(allow_blank=True)


class DatasetRuleSerializer(DatasetPlaceSerializer):
    """A rule in force."""

    tenant_shards = serializers.IntegerField()
    dataset_shards = serializers.IntegerField()
    load_balancing = serializers.CharField()
    shards = serializers.ListField(child=serializers.IntegerField())


class RulesSerializer(serializers.Serializer[Any]):
    version = serializers.IntegerField()
    created_at_ms = serializers.IntegerField()
    datasets = DatasetRuleSerializer(many=True)


class RuleChangeSerializer(DatasetPlaceSerializer):
    """What one version changed for one dataset."""

    id = serializers.IntegerField()
    version = serializers.IntegerField()
    at_ms = serializers.IntegerField()
    before = serializers.DictField(allow_null=True)
    after = serializers.DictField(allow_null=True)
    reason = serializers.CharField()


class HistorySerializer(serializers.Serializer[Any]):
    changes = RuleChangeSerializer(many=True)


class LimitsRowSerializer(serializers.Serializer[Any]):
    tenant = serializers.CharField(allow_blank=True)
    numbers = LIMITS.serializer_class()()


class LimitsListSerializer(serializers.Serializer[Any]):
    limits = LimitsRowSerializer(many=True)


class OverrideRowSerializer(DatasetPlaceSerializer):
    override = OVERRIDE.serializer_class()()


class OverrideListSerializer(serializers.Serializer[Any]):
    overrides = OverrideRowSerializer(many=True)


class LoadSerializer(serializers.Serializer[Any]):
    instance = serializers.CharField()
    before = serializers.CharField(help_text="share of all bytes")
    after = serializers.CharField()


class MoverSerializer(DatasetPlaceSerializer):
    moves = serializers.CharField(help_text="share of its bytes that another instance gets")
    shards_before = serializers.IntegerField()
    shards_after = serializers.IntegerField()


class ForesightSerializer(serializers.Serializer[Any]):
    """What would move."""

    shards_before = serializers.IntegerField()
    shards_after = serializers.IntegerField()
    moved_to_other_instances = serializers.CharField()
    unavoidable = serializers.CharField()
    moved_if_shards_stayed = serializers.CharField(help_text="what would move with the present number of shards")
    moved_to_other_shards = serializers.CharField()
    instances = LoadSerializer(many=True)
    datasets = MoverSerializer(many=True)
    notes = serializers.ListField(child=serializers.CharField())


class DecisionSerializer(DatasetPlaceSerializer):
    """What was decided."""

    changed = serializers.BooleanField()
    before = serializers.DictField(allow_null=True)
    after = serializers.DictField(allow_null=True)
    dry_run = serializers.BooleanField()
    foresight = ForesightSerializer(allow_null=True)


class InstanceSerializer(serializers.Serializer[Any]):
    instance = serializers.CharField()
    zone = serializers.CharField(allow_blank=True)
    address = serializers.CharField()
    tokens = serializers.IntegerField()
    state = serializers.CharField()
    heartbeat_at_ms = serializers.IntegerField()
    shards = serializers.IntegerField(help_text="that it hosts for the fleet")


class FleetSerializer(serializers.Serializer[Any]):
    ring_version = serializers.IntegerField()
    shards = serializers.IntegerField()
    instances = InstanceSerializer(many=True)


class DoneSerializer(serializers.Serializer[Any]):
    changed = serializers.ListField(child=serializers.CharField())
    foresight = ForesightSerializer(allow_null=True, help_text="of a dry run")


class WhatIfSerializer(serializers.Serializer[Any]):
    """A change of the fleet."""

    add = serializers.ListField(child=serializers.CharField(allow_blank=True), required=False, help_text="zones")
    remove = serializers.ListField(child=serializers.CharField(), required=False, help_text="instances")
    tokens = serializers.IntegerField(required=False, help_text="of each that comes")
    shards = serializers.IntegerField(required=False, allow_null=True)
