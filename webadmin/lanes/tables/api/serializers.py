"""Responses about tables in the OpenAPI schema."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from webadmin.lanes.tables.api.override_messages import BAD_FILE_STATES, KINDS, OVERRIDE_STATES
from webadmin.lanes.tables.api.table_messages import CHUNK_STATES, SEGMENT_STATES, TASK_STATES


class TableSerializer(serializers.Serializer[Any]):
    """A table and its policy."""

    tenant = serializers.CharField()
    name = serializers.CharField()
    url = serializers.CharField(required=False)
    time_column = serializers.CharField(required=False)
    time_unit = serializers.CharField(required=False, allow_blank=True)
    columns = serializers.ListField(child=serializers.DictField(), required=False)
    is_paused = serializers.BooleanField(required=False)
    refusal = serializers.CharField(required=False, allow_blank=True)
    sequence = serializers.IntegerField(required=False, help_text="grows with every change that readers see")
    published = serializers.IntegerField(required=False, help_text="the sequence that readers see")
    policy = serializers.DictField(required=False)
    dry_run = serializers.BooleanField(required=False)


class TableListSerializer(serializers.Serializer[Any]):
    tables = TableSerializer(many=True)


class AlteredSerializer(serializers.Serializer[Any]):
    """What is different, or would be."""

    dry_run = serializers.BooleanField()
    changed = serializers.DictField()


class IntervalSerializer(serializers.Serializer[Any]):
    """A stretch of whole chunks, the end exclusive."""

    start_ms = serializers.IntegerField()
    end_ms = serializers.IntegerField()


class FileAnswerSerializer(serializers.Serializer[Any]):
    """What became of a file."""

    path = serializers.CharField()
    status = serializers.ChoiceField(["registered", "known", "refused", "left"])
    code = serializers.CharField(required=False, help_text="of a refusal: stable and machine readable")
    message = serializers.CharField(required=False)


class RegisteredSerializer(serializers.Serializer[Any]):
    """What became of all of them."""

    dry_run = serializers.BooleanField()
    sequence = serializers.IntegerField(allow_null=True, help_text="from which readers see it; null: nothing came in")
    start_ms = serializers.IntegerField(allow_null=True)
    end_ms = serializers.IntegerField(allow_null=True)
    replaced = serializers.IntegerField(help_text="files that readers will not see any more")
    moved_files = serializers.IntegerField(help_text="files that stand in another entry now")
    files = FileAnswerSerializer(many=True)
    unchecked = serializers.ListField(
        child=serializers.CharField(),
        help_text="folders that could not be checked for a table of another format, and why",
    )


class DroppedSerializer(serializers.Serializer[Any]):
    """What became of an interval."""

    dry_run = serializers.BooleanField()
    sequence = serializers.IntegerField()
    replaced = serializers.IntegerField()


class SegmentSerializer(IntervalSerializer):
    """A file of a table, or a stretch without rows."""

    id = serializers.IntegerField()
    path = serializers.CharField(allow_blank=True)
    state = serializers.ChoiceField([*SEGMENT_STATES])
    version = serializers.CharField()
    partition = serializers.IntegerField()
    is_tombstone = serializers.BooleanField()
    size = serializers.IntegerField()
    rows = serializers.IntegerField()
    first_ms = serializers.IntegerField(allow_null=True)
    last_ms = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField(allow_blank=True)


class SegmentListSerializer(serializers.Serializer[Any]):
    segments = SegmentSerializer(many=True)


class ChunkSerializer(IntervalSerializer):
    """What is known of a chunk."""

    id = serializers.IntegerField()
    state = serializers.ChoiceField([*CHUNK_STATES])
    version = serializers.CharField(allow_blank=True)
    segments = serializers.IntegerField()
    bytes = serializers.IntegerField()
    priority = serializers.IntegerField(help_text="millionths")
    reason = serializers.CharField(allow_blank=True)
    task = serializers.IntegerField(allow_null=True)
    is_changed = serializers.BooleanField(help_text="files were added or removed since its analysis")
    quarantined = serializers.CharField(allow_blank=True)


class ChunkListSerializer(serializers.Serializer[Any]):
    chunks = ChunkSerializer(many=True)


class TaskSerializer(IntervalSerializer):
    """A task."""

    id = serializers.IntegerField()
    state = serializers.ChoiceField([*TASK_STATES])
    job = serializers.CharField(allow_blank=True)
    job_state = serializers.CharField(allow_blank=True)
    chunks = serializers.IntegerField()
    segments = serializers.IntegerField()
    bytes = serializers.IntegerField()
    cost = serializers.IntegerField()
    priority = serializers.IntegerField(help_text="millionths")
    is_over_limit = serializers.BooleanField()
    cause = serializers.CharField()
    ended_because = serializers.CharField(allow_blank=True)


class TaskListSerializer(serializers.Serializer[Any]):
    tasks = TaskSerializer(many=True)


class OverriddenChunksSerializer(IntervalSerializer):
    """The whole chunks that an action is about."""

    dry_run = serializers.BooleanField()
    table = serializers.CharField()
    chunks = serializers.IntegerField()
    segments = serializers.IntegerField(help_text="in chunks that are known")
    bytes = serializers.IntegerField()


class ChangedCountSerializer(serializers.Serializer[Any]):
    """How many overrides ended, or how many chunks are tried again."""

    dry_run = serializers.BooleanField()
    changed = serializers.IntegerField()


class ChunkOverrideSerializer(IntervalSerializer):
    """What an operator wanted of chunks."""

    id = serializers.IntegerField()
    kind = serializers.ChoiceField(KINDS)
    state = serializers.ChoiceField([*OVERRIDE_STATES])
    actor = serializers.CharField()
    why = serializers.CharField()
    created_at_ms = serializers.IntegerField()
    ended_at_ms = serializers.IntegerField(allow_null=True)
    ended_because = serializers.CharField(allow_blank=True)


class ChunkOverrideListSerializer(serializers.Serializer[Any]):
    overrides = ChunkOverrideSerializer(many=True)


class BadFileSerializer(serializers.Serializer[Any]):
    """A file that could not be read."""

    id = serializers.IntegerField()
    path = serializers.CharField()
    state = serializers.ChoiceField([*BAD_FILE_STATES])
    size = serializers.IntegerField()
    segment = serializers.IntegerField(allow_null=True, help_text="null: it never was in the table")
    error_class = serializers.CharField()
    message = serializers.CharField(allow_blank=True)
    place = serializers.CharField(allow_blank=True, help_text="row group and column")
    offset = serializers.IntegerField(help_text="-1: unknown")
    at_ms = serializers.IntegerField()
    released_at_ms = serializers.IntegerField(allow_null=True)
    released_by = serializers.CharField(allow_blank=True)
    release_why = serializers.CharField(allow_blank=True)


class BadFileListSerializer(serializers.Serializer[Any]):
    files = BadFileSerializer(many=True)


class ReleasedFilesSerializer(serializers.Serializer[Any]):
    """Quarantined files among them."""

    dry_run = serializers.BooleanField()
    released = serializers.ListField(child=serializers.CharField())
