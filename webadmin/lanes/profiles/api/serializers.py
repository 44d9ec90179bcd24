"""The index's requests and answers for the OpenAPI schema; the code that validates them is named beside each."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from webadmin.lanes.profiles.api.query_messages import DATASETS_MAX
from webadmin.lanes.profiles.services.add_blocks import AddStatus


class BlockAnswerSerializer(serializers.Serializer[Any]):
    """What became of one block."""

    id = serializers.CharField(help_text="empty where it could not be read", allow_blank=True)
    status = serializers.ChoiceField([status.value for status in AddStatus])
    code = serializers.CharField(required=False, help_text="with refused: stable and machine readable")
    message = serializers.CharField(required=False, help_text="with refused: for people")


class AddBlocksResponseSerializer(serializers.Serializer[Any]):
    """One answer per block, in the order sent (``webadmin.lanes.profiles.block_list``)."""

    command_index = serializers.IntegerField(allow_null=True, help_text="null if nothing was new")
    blocks = BlockAnswerSerializer(many=True)


class BlockQueryRequestSerializer(serializers.Serializer[Any]):
    """What to look for (``webadmin.lanes.profiles.api.query_messages``); times are unix milliseconds, closed at both
    ends.
    """

    tenants = serializers.ListField(child=serializers.CharField(), required=False, help_text="default: all listed")
    start_ms = serializers.IntegerField(min_value=0)
    end_ms = serializers.IntegerField(min_value=0)
    selector = serializers.CharField(required=False, allow_blank=True, help_text='such as {service_name="checkout"}')
    labels = serializers.ListField(child=serializers.CharField(), required=False, help_text="label names to return")
    by_name = serializers.BooleanField(
        required=False, help_text="a dataset without label sets counts as one of the service of its name"
    )
    datasets_max = serializers.IntegerField(
        min_value=1,
        max_value=DATASETS_MAX,
        required=False,
        help_text="how many datasets a page has at most; without cursor, more are refused (413). Default and most: "
        "200,000",
    )
    cursor = serializers.CharField(
        required=False,
        allow_blank=True,
        help_text='asks for a page: "" for the first, then next of the page before; 409 index_moved: begin again',
    )


class DatasetAnswerSerializer(serializers.Serializer[Any]):
    """One matching dataset."""

    position = serializers.IntegerField(help_text="its place in the block's list")
    tenant = serializers.CharField()
    name = serializers.CharField(allow_blank=True)
    format = serializers.IntegerField()
    min_time_ms = serializers.IntegerField()
    max_time_ms = serializers.IntegerField()
    size = serializers.IntegerField()
    table_of_contents = serializers.ListField(child=serializers.IntegerField())
    masks_applied = serializers.IntegerField(help_text="index of the last delete command that its bytes obey")
    masks = serializers.ListField(
        child=serializers.DictField(), help_text="delete requests whose rows a reader must leave out"
    )
    labels = serializers.ListField(child=serializers.DictField(child=serializers.CharField()))


class BlockFoundSerializer(serializers.Serializer[Any]):
    """A block with a matching dataset."""

    id = serializers.CharField()
    tenant = serializers.CharField(allow_blank=True)
    shard = serializers.IntegerField()
    level = serializers.IntegerField()
    object_key = serializers.CharField()
    size = serializers.IntegerField()
    min_time_ms = serializers.IntegerField()
    max_time_ms = serializers.IntegerField()
    datasets = DatasetAnswerSerializer(many=True)


class BlockQueryResponseSerializer(serializers.Serializer[Any]):
    """What was found, by tenant, shard and id."""

    blocks = BlockFoundSerializer(many=True)
    unknown_tenants = serializers.ListField(
        child=serializers.CharField(), help_text="those asked for of which there never was any data"
    )
    next = serializers.CharField(
        required=False, allow_blank=True, help_text='with cursor: the cursor of the next page, "" after the last'
    )
