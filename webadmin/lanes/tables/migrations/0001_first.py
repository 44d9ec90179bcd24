"""Data sources with their policies, registrations, segments, and the tasks that these refer to."""

from __future__ import annotations

import django.db.models.deletion
import webadmin.base.database.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("schedule", "0007_waiting_of_lanes"),
    ]

    operations = [
        migrations.CreateModel(
            name="DataSource",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tenant", webadmin.base.database.fields.ByteOrderedField(max_length=150)),
                ("name", webadmin.base.database.fields.ByteOrderedField(max_length=60)),
                ("url", webadmin.base.database.fields.ByteOrderedField(max_length=1000)),
                ("time_column", models.CharField(max_length=200)),
                ("time_unit", models.CharField(blank=True, max_length=2)),
                ("columns", models.JSONField(default=list)),
                ("arrow_schema", models.TextField(blank=True)),
                ("partition_columns", models.JSONField(default=list)),
                ("is_paused", models.BooleanField(default=False)),
                ("refusal", models.CharField(blank=True, max_length=500)),
                ("is_dirty", models.BooleanField(default=False)),
                ("sequence", models.PositiveBigIntegerField(default=0)),
                ("published", models.PositiveBigIntegerField(default=0)),
                ("publish_error", models.CharField(blank=True, max_length=500)),
                ("publisher_until_ms", models.BigIntegerField(null=True)),
                ("look_again_ms", models.BigIntegerField(null=True)),
                ("turn", models.PositiveBigIntegerField(default=0)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("looked_at_ms", models.BigIntegerField(null=True)),
            ],
            options={
                "ordering": ["tenant", "name"],
                "indexes": [
                    models.Index(condition=models.Q(("is_dirty", True)), fields=["id"], name="timeline_source_dirty"),
                    models.Index(
                        condition=models.Q(("sequence__gt", models.F("published"))),
                        fields=["id"],
                        name="timeline_source_behind",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "name"), name="timeline_source_name_unique"),
                    models.UniqueConstraint(fields=("url",), name="timeline_source_url_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("published__lte", models.F("sequence"))),
                        name="timeline_source_publishes_behind",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Policy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("granularity", models.CharField(default="day", max_length=30)),
                ("time_zone", models.CharField(default="UTC", max_length=60)),
                ("origin_ms", models.BigIntegerField(null=True)),
                ("segment_bytes_max", models.PositiveBigIntegerField(default=500000000)),
                ("segment_rows_max", models.PositiveBigIntegerField(default=0)),
                ("small_cost", models.PositiveBigIntegerField(default=1000000000)),
                ("task_cost_max", models.PositiveBigIntegerField(default=4000000000)),
                ("open_cost", models.PositiveBigIntegerField(default=4000000)),
                ("gain_half", models.PositiveIntegerField(default=8)),
                ("weight_fragmentation", models.PositiveIntegerField(default=55)),
                ("weight_oversize", models.PositiveIntegerField(default=20)),
                ("weight_alignment", models.PositiveIntegerField(default=10)),
                ("weight_recency", models.PositiveIntegerField(default=15)),
                ("half_life_seconds", models.PositiveIntegerField(default=0)),
                ("hot_seconds", models.PositiveIntegerField(default=0)),
                ("running_max", models.PositiveIntegerField(default=4)),
                ("running_cost_max", models.PositiveBigIntegerField(default=16000000000)),
                ("waiting_max", models.PositiveIntegerField(default=100)),
                ("low_water", models.PositiveIntegerField(default=0)),
                ("patience", models.PositiveIntegerField(default=2)),
                ("ageing_seconds", models.PositiveIntegerField(default=0)),
                (
                    "align",
                    models.CharField(
                        choices=[("never", "never"), ("touched", "touched"), ("always", "always")],
                        default="touched",
                        max_length=10,
                    ),
                ),
                ("sort_columns", models.JSONField(default=list)),
                ("roll_up", models.JSONField(null=True)),
                ("bytes_per_day", models.PositiveBigIntegerField(default=0)),
                ("deletion_delay_seconds", models.PositiveIntegerField(default=7200)),
                ("fingerprint", models.CharField(blank=True, max_length=80)),
                ("changed_at", models.DateTimeField(auto_now=True)),
                (
                    "source",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="policy", to="timeline.datasource"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "policies",
            },
        ),
        migrations.CreateModel(
            name="Registration",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "mode",
                    models.CharField(
                        choices=[("append", "append"), ("replace", "replace"), ("drop", "drop")], max_length=10
                    ),
                ),
                ("actor", models.CharField(max_length=150)),
                ("why", models.CharField(blank=True, max_length=500)),
                ("file_count", models.PositiveIntegerField()),
                ("byte_count", models.PositiveBigIntegerField()),
                ("row_count", models.PositiveBigIntegerField()),
                ("refused_count", models.PositiveIntegerField(default=0)),
                ("start_ms", models.BigIntegerField(null=True)),
                ("end_ms", models.BigIntegerField(null=True)),
                ("sequence", models.PositiveBigIntegerField()),
                ("at_ms", models.BigIntegerField()),
                (
                    "source",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="registrations",
                        to="timeline.datasource",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="Task",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=60)),
                (
                    "state",
                    models.CharField(
                        choices=[("open", "open"), ("done", "done"), ("shed", "shed"), ("ended", "ended")],
                        default="open",
                        max_length=10,
                    ),
                ),
                ("start_ms", models.BigIntegerField()),
                ("end_ms", models.BigIntegerField()),
                ("chunk_count", models.PositiveIntegerField()),
                ("segment_count", models.PositiveIntegerField()),
                ("byte_count", models.PositiveBigIntegerField()),
                ("cost", models.PositiveBigIntegerField()),
                ("expected_outputs", models.PositiveIntegerField(default=0)),
                ("priority", models.PositiveIntegerField()),
                ("colour", models.PositiveIntegerField(default=0)),
                ("is_over_limit", models.BooleanField(default=False)),
                ("is_ordered", models.BooleanField(default=False)),
                ("admitted_at_ms", models.BigIntegerField(null=True)),
                ("passed", models.PositiveIntegerField(default=0)),
                ("cause", models.CharField(max_length=500)),
                ("shared", models.JSONField(default=list)),
                ("grid", models.CharField(blank=True, max_length=80)),
                ("fingerprint", models.CharField(max_length=80)),
                ("command_index", models.BigIntegerField()),
                ("created_at_ms", models.BigIntegerField()),
                ("finished_at_ms", models.BigIntegerField(null=True)),
                ("ended_because", models.CharField(blank=True, max_length=500)),
                ("verified_token", models.BigIntegerField(default=0)),
                ("finding", models.CharField(blank=True, max_length=500)),
                ("bytes_read", models.PositiveBigIntegerField(null=True)),
                ("bytes_written", models.PositiveBigIntegerField(null=True)),
                ("rows_read", models.PositiveBigIntegerField(null=True)),
                ("rows_written", models.PositiveBigIntegerField(null=True)),
                (
                    "job",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="timeline_task",
                        to="schedule.job",
                    ),
                ),
                (
                    "source",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="tasks",
                        to="timeline.datasource",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="Segment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("visible", "visible"),
                            ("replaced", "replaced"),
                            ("quarantined", "quarantined"),
                            ("deleted", "deleted"),
                        ],
                        default="visible",
                        max_length=12,
                    ),
                ),
                ("path", webadmin.base.database.fields.ByteOrderedField(blank=True, max_length=900)),
                ("folder", webadmin.base.database.fields.ByteOrderedField(blank=True, max_length=900)),
                ("start_ms", models.BigIntegerField()),
                ("end_ms", models.BigIntegerField()),
                ("is_spanning", models.BooleanField(default=False)),
                ("version", webadmin.base.database.fields.ByteOrderedField(max_length=40)),
                ("minor_version", models.PositiveIntegerField(default=0)),
                ("partition", models.PositiveIntegerField()),
                ("is_tombstone", models.BooleanField(default=False)),
                ("size_bytes", models.PositiveBigIntegerField()),
                ("row_count", models.PositiveBigIntegerField()),
                ("first_ms", models.BigIntegerField(null=True)),
                ("last_ms", models.BigIntegerField(null=True)),
                ("checksum", models.CharField(blank=True, max_length=80)),
                ("facts", models.JSONField(default=dict)),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("came_in", models.PositiveBigIntegerField()),
                ("replaced_in", models.PositiveBigIntegerField(null=True)),
                ("unlinked_at_ms", models.BigIntegerField(null=True)),
                ("created_at_ms", models.BigIntegerField()),
                (
                    "registration",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="segments",
                        to="timeline.registration",
                    ),
                ),
                (
                    "source",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="segments",
                        to="timeline.datasource",
                    ),
                ),
                (
                    "made_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="outputs",
                        to="timeline.task",
                    ),
                ),
                (
                    "replaced_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="replaced",
                        to="timeline.task",
                    ),
                ),
            ],
            options={
                "ordering": ["source", "start_ms", "path"],
            },
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(fields=["source", "state", "-id"], name="timeline_task_of_source"),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("finished_at_ms", None), ("state", "open")),
                    models.Q(models.Q(("state", "open"), _negated=True), ("finished_at_ms__isnull", False)),
                    _connector="OR",
                ),
                name="timeline_task_ends_some_time",
            ),
        ),
        migrations.AddIndex(
            model_name="segment",
            index=models.Index(fields=["source", "state", "start_ms"], name="timeline_segment_by_start"),
        ),
        migrations.AddIndex(
            model_name="segment",
            index=models.Index(
                condition=models.Q(("is_spanning", True), ("state", "visible")),
                fields=["source", "start_ms"],
                name="timeline_segment_spanning",
            ),
        ),
        migrations.AddIndex(
            model_name="segment",
            index=models.Index(
                condition=models.Q(("state", "replaced")),
                fields=["source", "unlinked_at_ms"],
                name="timeline_segment_to_delete",
            ),
        ),
        migrations.AddConstraint(
            model_name="segment",
            constraint=models.UniqueConstraint(
                condition=models.Q(models.Q(("state", "deleted"), _negated=True), ("is_tombstone", False)),
                fields=("source", "path"),
                name="timeline_segment_path_unique",
            ),
        ),
        migrations.AddConstraint(
            model_name="segment",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "visible")),
                fields=("source", "start_ms", "end_ms", "version", "partition"),
                name="timeline_segment_identity_unique",
            ),
        ),
        migrations.AddConstraint(
            model_name="segment",
            constraint=models.CheckConstraint(
                condition=models.Q(("start_ms__lt", models.F("end_ms"))), name="timeline_segment_takes_time"
            ),
        ),
        migrations.AddConstraint(
            model_name="segment",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("is_tombstone", True), ("path", ""), ("size_bytes", 0)),
                    models.Q(("is_tombstone", False), models.Q(("path", ""), _negated=True)),
                    _connector="OR",
                ),
                name="timeline_segment_is_a_file",
            ),
        ),
    ]
