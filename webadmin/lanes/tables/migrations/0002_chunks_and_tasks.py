"""Chunks, what tasks are planned on and wait for, orders, manifests, and what is kept out or discarded."""

from __future__ import annotations

import django.db.models.deletion
import webadmin.base.database.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("schedule", "0007_waiting_of_lanes"),
        ("timeline", "0001_first"),
    ]

    operations = [
        migrations.CreateModel(
            name="DiscardedOutput",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("path", webadmin.base.database.fields.ByteOrderedField(max_length=900)),
                ("is_prefix", models.BooleanField(default=False)),
                ("reason", models.CharField(max_length=500)),
                ("created_at_ms", models.BigIntegerField()),
                ("delete_at_ms", models.BigIntegerField()),
                ("deleted_at_ms", models.BigIntegerField(null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("last_error", models.CharField(blank=True, max_length=500)),
                (
                    "source",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="discarded",
                        to="timeline.datasource",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="discarded",
                        to="timeline.task",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="Chunk",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("start_ms", models.BigIntegerField()),
                ("end_ms", models.BigIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("empty", "empty"),
                            ("stable", "stable"),
                            ("unstable", "unstable"),
                            ("deferred", "deferred"),
                            ("skipped", "skipped"),
                        ],
                        default="unstable",
                        max_length=10,
                    ),
                ),
                ("is_dirty", models.BooleanField(default=True)),
                ("fingerprint", models.CharField(blank=True, max_length=80)),
                ("version", webadmin.base.database.fields.ByteOrderedField(blank=True, max_length=40)),
                ("segment_count", models.PositiveIntegerField(default=0)),
                ("byte_count", models.PositiveBigIntegerField(default=0)),
                ("largest_bytes", models.PositiveBigIntegerField(default=0)),
                ("digest", models.CharField(blank=True, max_length=80)),
                ("priority", models.PositiveIntegerField(default=0)),
                ("looked", models.JSONField(default=dict)),
                ("cost", models.PositiveBigIntegerField(default=0)),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("note", models.CharField(blank=True, max_length=500)),
                ("outputs", models.JSONField(default=list)),
                ("outputs_fingerprint", models.CharField(blank=True, max_length=80)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("is_quarantined", models.BooleanField(default=False)),
                ("quarantine_reason", models.CharField(blank=True, max_length=500)),
                ("analyses", models.PositiveIntegerField(default=0)),
                ("changes", models.PositiveIntegerField(default=0)),
                ("commits", models.PositiveIntegerField(default=0)),
                ("committed_at_ms", models.BigIntegerField(null=True)),
                ("looked_at_ms", models.BigIntegerField(null=True)),
                ("look_again_ms", models.BigIntegerField(null=True)),
                (
                    "source",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="chunks",
                        to="timeline.datasource",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="owned_chunks",
                        to="timeline.task",
                    ),
                ),
            ],
            options={
                "ordering": ["source", "start_ms"],
            },
        ),
        migrations.CreateModel(
            name="TaskChunk",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("start_ms", models.BigIntegerField()),
                ("end_ms", models.BigIntegerField()),
                ("digest", models.CharField(max_length=80)),
                ("segment_count", models.PositiveIntegerField()),
                ("byte_count", models.PositiveBigIntegerField()),
                ("keys", models.JSONField(default=list)),
                ("shared", models.JSONField(default=list)),
                ("is_open", models.BooleanField(default=True)),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("planned", "planned"),
                            ("published", "published"),
                            ("carried_over", "carried over"),
                            ("aborted", "aborted"),
                            ("given_up", "given up"),
                        ],
                        default="planned",
                        max_length=12,
                    ),
                ),
                ("why", models.CharField(blank=True, max_length=500)),
                ("output_count", models.PositiveIntegerField(null=True)),
                ("output_bytes", models.PositiveBigIntegerField(null=True)),
                ("row_count", models.PositiveBigIntegerField(null=True)),
                ("ended_at_ms", models.BigIntegerField(null=True)),
                (
                    "source",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="task_chunks",
                        to="timeline.datasource",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="chunks",
                        to="timeline.task",
                    ),
                ),
            ],
            options={
                "ordering": ["task", "start_ms"],
            },
        ),
        migrations.CreateModel(
            name="TaskDependency",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "needs",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="holds_up", to="timeline.task"
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="needs",
                        to="timeline.task",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="TaskSegment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "segment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="planned_in", to="timeline.segment"
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="planned",
                        to="timeline.task",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ChunkOrder",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(choices=[("never", "never"), ("now", "compact now")], max_length=10)),
                ("start_ms", models.BigIntegerField()),
                ("end_ms", models.BigIntegerField()),
                ("actor", models.CharField(max_length=150)),
                ("why", models.CharField(max_length=500)),
                ("created_at_ms", models.BigIntegerField()),
                ("ended_at_ms", models.BigIntegerField(null=True)),
                ("ended_because", models.CharField(blank=True, max_length=500)),
                (
                    "source",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="orders",
                        to="timeline.datasource",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("ended_at_ms", None)),
                        fields=["source", "start_ms"],
                        name="timeline_order_in_force",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("start_ms__lt", models.F("end_ms"))), name="timeline_order_takes_time"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Manifest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sequence", models.PositiveBigIntegerField()),
                ("path", models.CharField(max_length=900)),
                ("sha256", models.CharField(max_length=64)),
                ("file_count", models.PositiveIntegerField()),
                ("byte_count", models.PositiveBigIntegerField()),
                ("row_count", models.PositiveBigIntegerField()),
                ("written_at_ms", models.BigIntegerField()),
                ("published_at_ms", models.BigIntegerField(null=True)),
                ("superseded_at_ms", models.BigIntegerField(null=True)),
                ("deleted_at_ms", models.BigIntegerField(null=True)),
                (
                    "source",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="manifests",
                        to="timeline.datasource",
                    ),
                ),
            ],
            options={
                "ordering": ["source", "-sequence"],
                "constraints": [
                    models.UniqueConstraint(fields=("source", "sequence"), name="timeline_manifest_unique")
                ],
            },
        ),
        migrations.CreateModel(
            name="BadFile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("path", webadmin.base.database.fields.ByteOrderedField(max_length=900)),
                ("size_bytes", models.PositiveBigIntegerField(default=0)),
                ("error_class", models.CharField(max_length=100)),
                ("message", models.TextField(blank=True)),
                ("place", models.CharField(blank=True, max_length=200)),
                ("offset", models.BigIntegerField(default=-1)),
                ("at_ms", models.BigIntegerField()),
                ("released_at_ms", models.BigIntegerField(null=True)),
                ("released_by", models.CharField(blank=True, max_length=150)),
                ("release_why", models.CharField(blank=True, max_length=500)),
                (
                    "job",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="timeline_bad_files",
                        to="schedule.job",
                    ),
                ),
                (
                    "source",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="bad_files",
                        to="timeline.datasource",
                    ),
                ),
                (
                    "segment",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="bad_files",
                        to="timeline.segment",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("released_at_ms", None)),
                        fields=("source", "path"),
                        name="timeline_bad_file_held_once",
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="discardedoutput",
            index=models.Index(
                condition=models.Q(("deleted_at_ms", None)),
                fields=["source", "delete_at_ms"],
                name="timeline_discarded_open",
            ),
        ),
        migrations.AddIndex(
            model_name="chunk",
            index=models.Index(
                condition=models.Q(("is_dirty", True)), fields=["source", "start_ms"], name="timeline_chunk_dirty"
            ),
        ),
        migrations.AddIndex(
            model_name="chunk",
            index=models.Index(
                condition=models.Q(("state", "deferred")),
                fields=["source", "-priority", "-end_ms"],
                name="timeline_chunk_deferred",
            ),
        ),
        migrations.AddIndex(
            model_name="chunk",
            index=models.Index(fields=["source", "state"], name="timeline_chunk_by_state"),
        ),
        migrations.AddConstraint(
            model_name="chunk",
            constraint=models.UniqueConstraint(fields=("source", "start_ms"), name="timeline_chunk_unique"),
        ),
        migrations.AddConstraint(
            model_name="chunk",
            constraint=models.CheckConstraint(
                condition=models.Q(("start_ms__lt", models.F("end_ms"))), name="timeline_chunk_takes_time"
            ),
        ),
        migrations.AddIndex(
            model_name="taskchunk",
            index=models.Index(fields=["source", "start_ms", "-id"], name="timeline_task_chunk_history"),
        ),
        migrations.AddConstraint(
            model_name="taskchunk",
            constraint=models.UniqueConstraint(fields=("task", "start_ms"), name="timeline_task_chunk_unique"),
        ),
        migrations.AddConstraint(
            model_name="taskchunk",
            constraint=models.UniqueConstraint(
                condition=models.Q(("is_open", True)),
                fields=("source", "start_ms"),
                name="timeline_chunk_of_one_open_task",
            ),
        ),
        migrations.AddConstraint(
            model_name="taskdependency",
            constraint=models.UniqueConstraint(fields=("task", "needs"), name="timeline_dependency_unique"),
        ),
        migrations.AddConstraint(
            model_name="taskdependency",
            constraint=models.CheckConstraint(
                condition=models.Q(("task", models.F("needs")), _negated=True), name="timeline_dependency_of_another"
            ),
        ),
        migrations.AddConstraint(
            model_name="tasksegment",
            constraint=models.UniqueConstraint(fields=("task", "segment"), name="timeline_task_segment_unique"),
        ),
    ]
