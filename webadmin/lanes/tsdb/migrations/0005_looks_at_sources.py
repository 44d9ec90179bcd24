"""Parts of groups say how far the look at their sources is; sources of groups that failed are read once more."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tsdb", "0004_patience"),
    ]

    operations = [
        migrations.RemoveField(
            model_name="group",
            name="verified_token",
        ),
        migrations.AddField(
            model_name="part",
            name="verified_token",
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="part",
            name="looked",
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name="part",
            name="unread",
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="part",
            name="look_again_at_ms",
            field=models.BigIntegerField(default=0),
        ),
    ]
