from django.db import migrations, models

import webadmin.base.database.fields


class Migration(migrations.Migration):
    dependencies = [
        ("schedule", "0010_log_positions"),
    ]

    operations = [
        migrations.RenameField("isolationstop", "bad_blocks", "bad_sources"),
        migrations.RenameField("isolationstop", "merged_blocks", "merged_sources"),
        migrations.AddField("isolationstop", "ended_wall_ms", models.BigIntegerField(null=True)),
        migrations.AddField(
            "isolationstop", "place", webadmin.base.database.fields.ByteOrderedField(blank=True, max_length=400)
        ),
        migrations.RemoveConstraint("isolationstop", "isolation_stop_is_open_once_per_lane"),
        migrations.AddConstraint(
            "isolationstop",
            models.UniqueConstraint(
                condition=models.Q(("ended_at_ms", None)), fields=("lane", "place"), name="isolation_stop_is_open_once"
            ),
        ),
        migrations.AlterField(
            model_name="isolationstop",
            name="decision",
            field=models.CharField(
                blank=True,
                choices=[
                    ("retry", "try them again: the store is repaired"),
                    ("quarantine", "quarantine them: they are damaged"),
                ],
                max_length=10,
            ),
        ),
    ]
