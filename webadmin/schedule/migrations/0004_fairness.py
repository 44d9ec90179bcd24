"""What lanes and tenants have had of the fleet, the priority of jobs and queues, policies per tenant."""

from django.db import migrations, models

import webadmin.base.database.fields


def give_priorities(apps, schema_editor):
    """Jobs and queues that are there already stand in line by their age."""
    apps.get_model("schedule", "Job").objects.update(priority_ms=models.F("added_at_ms"))
    apps.get_model("schedule", "LevelQueue").objects.update(priority_ms=models.F("ready_at_ms"))


class Migration(migrations.Migration):
    dependencies = [
        ("schedule", "0003_operations"),
    ]

    operations = [
        migrations.CreateModel(
            name="LaneShare",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("lane", webadmin.base.database.fields.ByteOrderedField(max_length=20)),
                ("tenant_time", models.BigIntegerField(default=0)),
                ("virtual_time", models.BigIntegerField(default=0)),
                ("started_time", models.BigIntegerField(default=0)),
            ],
            options={
                "ordering": ["lane"],
            },
        ),
        migrations.CreateModel(
            name="TenantShare",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("lane", webadmin.base.database.fields.ByteOrderedField(max_length=20)),
                ("tenant", webadmin.base.database.fields.ByteOrderedField(blank=True, max_length=150)),
                ("virtual_time", models.BigIntegerField(default=0)),
                ("is_awake", models.BooleanField(default=False)),
            ],
            options={
                "ordering": ["lane", "tenant"],
            },
        ),
        migrations.AlterModelOptions(
            name="levelpolicy",
            options={"ordering": ["lane", "level", "tenant"], "verbose_name_plural": "level policies"},
        ),
        migrations.RemoveConstraint(
            model_name="levelpolicy",
            name="level_policy_key_unique",
        ),
        migrations.RemoveIndex(
            model_name="job",
            name="job_waiting_in_order",
        ),
        migrations.RemoveIndex(
            model_name="levelqueue",
            name="level_queue_ready",
        ),
        migrations.AddField(
            model_name="job",
            name="priority_ms",
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="levelpolicy",
            name="tenant",
            field=webadmin.base.database.fields.ByteOrderedField(blank=True, default="", max_length=150),
        ),
        migrations.AddField(
            model_name="levelqueue",
            name="is_noticed",
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name="levelqueue",
            name="priority_ms",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="levelqueue",
            name="served_at_ms",
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("state", "waiting")),
                fields=["state", "priority_ms", "name"],
                name="job_waiting_in_order",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("state", "leased")), fields=["state", "lane", "tenant"], name="job_leased_of_tenant"
            ),
        ),
        migrations.AddIndex(
            model_name="levelqueue",
            index=models.Index(
                condition=models.Q(("block_count__gt", 0), ("is_noticed", False)),
                fields=["ready_at_ms", "id"],
                name="level_queue_ready",
            ),
        ),
        migrations.AddIndex(
            model_name="levelqueue",
            index=models.Index(
                condition=models.Q(("block_count__gt", 0), ("is_noticed", True)),
                fields=["lane", "tenant", "priority_ms", "id"],
                name="level_queue_of_tenant",
            ),
        ),
        migrations.AddConstraint(
            model_name="levelpolicy",
            constraint=models.UniqueConstraint(fields=("lane", "tenant", "level"), name="level_policy_key_unique"),
        ),
        migrations.AddConstraint(
            model_name="laneshare",
            constraint=models.UniqueConstraint(fields=("lane",), name="lane_share_unique"),
        ),
        migrations.AddIndex(
            model_name="tenantshare",
            index=models.Index(
                condition=models.Q(("is_awake", True)),
                fields=["lane", "virtual_time", "tenant"],
                name="tenant_share_neediest",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantshare",
            constraint=models.UniqueConstraint(fields=("lane", "tenant"), name="tenant_share_unique"),
        ),
        migrations.RunPython(give_priorities, migrations.RunPython.noop),
    ]
