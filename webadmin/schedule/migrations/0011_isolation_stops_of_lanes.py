from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("schedule", "0010_log_positions"),
    ]

    operations = [
        migrations.RenameField("isolationstop", "bad_blocks", "bad_sources"),
        migrations.RenameField("isolationstop", "merged_blocks", "merged_sources"),
        migrations.AddField("isolationstop", "ended_wall_ms", models.BigIntegerField(null=True)),
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
