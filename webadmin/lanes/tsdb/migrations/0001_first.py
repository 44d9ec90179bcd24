"""Buckets of Prometheus blocks, and what is to be done with them."""

from __future__ import annotations

import django.db.models.deletion
import webadmin.base.database.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("schedule", "0005_consolidation"),
    ]

    operations = [
        migrations.CreateModel(
            name="Bucket",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", webadmin.base.database.fields.ByteOrderedField(max_length=60)),
                ("url", webadmin.base.database.fields.ByteOrderedField(max_length=1000)),
                ("layout", models.CharField(choices=[("cortex", "Cortex"), ("thanos", "Thanos")], max_length=10)),
                ("ranges", models.CharField(default="2h,12h,24h", max_length=100)),
                ("consistency_delay_seconds", models.PositiveIntegerField(default=1500)),
                (
                    "winner",
                    models.CharField(
                        choices=[("default", "ours"), ("prometheus", "that of Prometheus")],
                        default="default",
                        max_length=10,
                    ),
                ),
                ("partition_series", models.PositiveBigIntegerField(default=0)),
                ("partition_index_bytes", models.PositiveBigIntegerField(default=68719476736)),
                ("replication", models.PositiveSmallIntegerField(default=1)),
                ("deletion_delay_seconds", models.PositiveIntegerField(default=43200)),
                ("partial_age_seconds", models.PositiveIntegerField(default=172800)),
                ("replica_labels", models.CharField(blank=True, max_length=500)),
                ("tenant_shard_size", models.PositiveIntegerField(default=0)),
                ("is_paused", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("scanned_at_ms", models.BigIntegerField(null=True)),
                ("scan_requests", models.PositiveIntegerField(default=0)),
                ("scan_error", models.CharField(blank=True, max_length=500)),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(fields=("name",), name="tsdb_bucket_name_unique"),
                    models.UniqueConstraint(fields=("url",), name="tsdb_bucket_url_unique"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Folder",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", webadmin.base.database.fields.ByteOrderedField(blank=True, max_length=200)),
                ("looked", models.JSONField(default=dict)),
                ("scanned_at_ms", models.BigIntegerField(null=True)),
                (
                    "bucket",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="folders",
                        to="tsdb.bucket",
                    ),
                ),
            ],
            options={
                "ordering": ["bucket", "name"],
            },
        ),
        migrations.CreateModel(
            name="BucketTenant",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", webadmin.base.database.fields.ByteOrderedField(max_length=150)),
                ("refusal", models.CharField(blank=True, max_length=500)),
                ("refused_until_ms", models.BigIntegerField(null=True)),
                ("is_deleted", models.BooleanField(default=False)),
                ("planned_at_ms", models.BigIntegerField(null=True)),
                ("plan_at_ms", models.BigIntegerField(default=0, null=True)),
                ("waiting", models.PositiveIntegerField(default=0)),
                ("compactions", models.PositiveIntegerField(default=0)),
                ("slots", models.JSONField(default=list)),
                ("index_wanted", models.PositiveBigIntegerField(default=0)),
                ("index_written", models.PositiveBigIntegerField(default=0)),
                ("index_written_at_ms", models.BigIntegerField(null=True)),
                (
                    "bucket",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="tenants",
                        to="tsdb.bucket",
                    ),
                ),
                (
                    "folder",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="tenants", to="tsdb.folder"
                    ),
                ),
            ],
            options={
                "ordering": ["bucket", "name"],
            },
        ),
        migrations.CreateModel(
            name="Group",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("group_key", webadmin.base.database.fields.ByteOrderedField(blank=True, max_length=300)),
                ("range_ms", models.BigIntegerField()),
                ("start_ms", models.BigIntegerField()),
                ("partitions", models.PositiveIntegerField()),
                ("level", models.PositiveIntegerField()),
                ("is_vertical", models.BooleanField()),
                ("cause", models.CharField(max_length=500)),
                (
                    "state",
                    models.CharField(
                        choices=[("open", "open"), ("done", "done"), ("dissolved", "dissolved")],
                        default="open",
                        max_length=10,
                    ),
                ),
                ("block_count", models.PositiveIntegerField()),
                ("byte_count", models.PositiveBigIntegerField()),
                ("series_count", models.PositiveBigIntegerField(default=0)),
                ("created_at_ms", models.BigIntegerField()),
                ("command_index", models.BigIntegerField()),
                ("finished_at_ms", models.BigIntegerField(null=True)),
                ("ended_because", models.CharField(blank=True, max_length=500)),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="groups",
                        to="tsdb.buckettenant",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="Block",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("ulid", webadmin.base.database.fields.UlidField(max_length=26)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("live", "live"),
                            ("owned", "owned"),
                            ("pending", "pending"),
                            ("superseded", "superseded"),
                            ("marked", "marked"),
                            ("gone", "gone"),
                        ],
                        default="live",
                        max_length=10,
                    ),
                ),
                ("min_time_ms", models.BigIntegerField()),
                ("max_time_ms", models.BigIntegerField()),
                ("level", models.PositiveIntegerField()),
                ("group_key", webadmin.base.database.fields.ByteOrderedField(blank=True, max_length=300)),
                ("series", models.PositiveBigIntegerField(default=0)),
                ("samples", models.PositiveBigIntegerField(default=0)),
                ("tombstones", models.PositiveBigIntegerField(default=0)),
                ("size_bytes", models.PositiveBigIntegerField()),
                ("index_bytes", models.PositiveBigIntegerField(null=True)),
                ("partition", models.PositiveIntegerField(default=0)),
                ("partitions", models.PositiveIntegerField(default=1)),
                ("produced_by", models.BigIntegerField(null=True)),
                ("time_range_ms", models.BigIntegerField(null=True)),
                ("origins", models.JSONField(default=list)),
                ("hints", models.JSONField(default=list)),
                ("is_failed", models.BooleanField(default=False)),
                ("files", models.JSONField()),
                ("meta", models.BinaryField()),
                ("no_compact", models.CharField(blank=True, max_length=500)),
                ("quarantined", models.CharField(blank=True, max_length=500)),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("uploaded_at_ms", models.BigIntegerField(null=True)),
                ("found_at_ms", models.BigIntegerField()),
                ("visible_at_ms", models.BigIntegerField(null=True)),
                ("marked_at_ms", models.BigIntegerField(null=True)),
                (
                    "made_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="tsdb_blocks",
                        to="schedule.job",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="blocks",
                        to="tsdb.buckettenant",
                    ),
                ),
                (
                    "group",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="sources", to="tsdb.group"
                    ),
                ),
            ],
            options={
                "ordering": ["tenant", "min_time_ms", "ulid"],
            },
        ),
        migrations.CreateModel(
            name="OutboxStep",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("write_meta", "write meta.json"),
                            ("mark_deletion", "mark for deletion"),
                            ("mark_no_compact", "mark as not to be compacted"),
                            ("unmark_no_compact", "take the no-compact mark back"),
                        ],
                        max_length=20,
                    ),
                ),
                ("detail", models.CharField(blank=True, max_length=500)),
                ("created_at_ms", models.BigIntegerField()),
                ("done_at_ms", models.BigIntegerField(null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("last_error", models.CharField(blank=True, max_length=500)),
                (
                    "block",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="steps", to="tsdb.block"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="steps",
                        to="tsdb.buckettenant",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="Part",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("partition", models.PositiveIntegerField()),
                ("is_done", models.BooleanField(default=False)),
                (
                    "group",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="parts",
                        to="tsdb.group",
                    ),
                ),
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="tsdb_part", to="schedule.job"
                    ),
                ),
                (
                    "result",
                    models.OneToOneField(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="part", to="tsdb.block"
                    ),
                ),
            ],
            options={
                "ordering": ["group", "partition"],
            },
        ),
        migrations.CreateModel(
            name="BlockQuarantine",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("error_class", models.CharField(max_length=100)),
                ("message", models.TextField(blank=True)),
                ("file", models.CharField(blank=True, max_length=100)),
                ("offset", models.BigIntegerField(default=-1)),
                ("at_ms", models.BigIntegerField()),
                ("command_index", models.BigIntegerField()),
                ("released_at_ms", models.BigIntegerField(null=True)),
                ("released_by", models.CharField(blank=True, max_length=150)),
                ("release_why", models.CharField(blank=True, max_length=500)),
                (
                    "block",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="quarantines",
                        to="tsdb.block",
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="tsdb_quarantines",
                        to="schedule.job",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("released_at_ms", None)),
                        fields=("block",),
                        name="tsdb_quarantine_holds_a_block_once",
                    )
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="folder",
            constraint=models.UniqueConstraint(fields=("bucket", "name"), name="tsdb_folder_unique"),
        ),
        migrations.AddIndex(
            model_name="buckettenant",
            index=models.Index(
                condition=models.Q(("plan_at_ms__isnull", False)), fields=["plan_at_ms", "id"], name="tsdb_tenant_due"
            ),
        ),
        migrations.AddConstraint(
            model_name="buckettenant",
            constraint=models.UniqueConstraint(fields=("bucket", "name"), name="tsdb_tenant_unique"),
        ),
        migrations.AddIndex(
            model_name="group",
            index=models.Index(fields=["tenant", "state", "-id"], name="tsdb_group_of_tenant"),
        ),
        migrations.AddConstraint(
            model_name="group",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "open")),
                fields=("tenant", "group_key", "range_ms", "start_ms"),
                name="tsdb_group_unique_while_open",
            ),
        ),
        migrations.AddConstraint(
            model_name="group",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("finished_at_ms", None), ("state", "open")),
                    models.Q(models.Q(("state", "open"), _negated=True), ("finished_at_ms__isnull", False)),
                    _connector="OR",
                ),
                name="tsdb_group_ends_some_time",
            ),
        ),
        migrations.AddIndex(
            model_name="block",
            index=models.Index(fields=["tenant", "state", "min_time_ms"], name="tsdb_block_of_tenant"),
        ),
        migrations.AddIndex(
            model_name="block",
            index=models.Index(fields=["ulid"], name="tsdb_block_by_ulid"),
        ),
        migrations.AddConstraint(
            model_name="block",
            constraint=models.UniqueConstraint(fields=("tenant", "ulid"), name="tsdb_block_unique"),
        ),
        migrations.AddConstraint(
            model_name="block",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "owned"), _negated=True), ("group__isnull", False), _connector="OR"
                ),
                name="tsdb_block_owned_by_a_group",
            ),
        ),
        migrations.AddIndex(
            model_name="outboxstep",
            index=models.Index(
                condition=models.Q(("done_at_ms", None)), fields=["tenant", "id"], name="tsdb_step_open"
            ),
        ),
        migrations.AddConstraint(
            model_name="part",
            constraint=models.UniqueConstraint(fields=("group", "partition"), name="tsdb_part_unique"),
        ),
    ]
