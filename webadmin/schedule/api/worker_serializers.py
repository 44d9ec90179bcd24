"""The poll request and response in the OpenAPI schema; ``engine.protocol.wire`` validates them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from engine.protocol import wire
from engine.protocol.fields import COUNT_MAX, SECONDS_MAX
from engine.protocol.messages import UpdateStatus


class ProgressSerializer(serializers.Serializer[Any]):
    """How far a running job is, in units its lane chooses."""

    done = serializers.IntegerField(min_value=0, max_value=COUNT_MAX)
    total = serializers.IntegerField(min_value=0, max_value=COUNT_MAX)
    phase = serializers.CharField(max_length=wire.NAME_MAX, allow_blank=True, required=False)


class FailureReasonSerializer(serializers.Serializer[Any]):
    """Why a job was given back."""

    error_class = serializers.CharField(max_length=wire.NAME_MAX)
    message = serializers.CharField(max_length=wire.TEXT_MAX, allow_blank=True)
    object = serializers.CharField(max_length=wire.KEY_MAX, allow_blank=True, required=False)
    section = serializers.CharField(max_length=wire.NAME_MAX, allow_blank=True, required=False)
    offset = serializers.IntegerField(min_value=-1, max_value=COUNT_MAX, required=False)
    build = serializers.CharField(max_length=wire.NAME_MAX, allow_blank=True, required=False)


class JobUpdateSerializer(serializers.Serializer[Any]):
    """A report on one job under one token."""

    job = serializers.CharField(max_length=wire.JOB_NAME_MAX)
    token = serializers.CharField(max_length=wire.TOKEN_MAX)
    status = serializers.ChoiceField([status.value for status in UpdateStatus])
    progress = ProgressSerializer(required=False, allow_null=True)
    result = serializers.DictField(required=False, allow_null=True, help_text="With success: the lane's result")
    reason = FailureReasonSerializer(required=False, allow_null=True)


class PollRequestSerializer(serializers.Serializer[Any]):
    """Reports, refreshes and the wish for new work in one request."""

    worker = serializers.CharField(max_length=wire.NAME_MAX)
    build = serializers.CharField(max_length=wire.NAME_MAX, allow_blank=True)
    capacity = serializers.IntegerField(min_value=0, max_value=wire.CAPACITY_MAX)
    updates = JobUpdateSerializer(  # type: ignore[call-arg]  # ``many`` makes a list, which has a length
        many=True, required=False, max_length=wire.UPDATES_MAX
    )
    heard = serializers.IntegerField(
        min_value=0,
        max_value=COUNT_MAX,
        required=False,
        help_text="After an answer was lost: the serial of the last one that came; jobs it should name are given back",
    )


class LeaseSerializer(serializers.Serializer[Any]):
    """A job the worker still holds."""

    job = serializers.CharField()
    token = serializers.CharField()
    expires_in = serializers.FloatField(min_value=0, max_value=SECONDS_MAX, help_text="seconds")


class AssignmentSerializer(serializers.Serializer[Any]):
    """A job newly given to the worker."""

    job = serializers.CharField()
    token = serializers.CharField()
    spec = serializers.DictField(help_text="What the lane's merge needs to know")
    expires_in = serializers.FloatField(min_value=0, max_value=SECONDS_MAX, help_text="seconds")


class PollResponseSerializer(serializers.Serializer[Any]):
    """A reported job that is not in ``leases`` is not the worker's any more: it was settled, or it is lost."""

    leases = LeaseSerializer(many=True)
    assignments = AssignmentSerializer(many=True)
    serial = serializers.IntegerField(min_value=0, max_value=COUNT_MAX)
