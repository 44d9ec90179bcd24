"""Groups say when their sources were read alone, and what that showed."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tsdb", "0001_first"),
    ]

    operations = [
        migrations.AddField(
            model_name="group",
            name="finding",
            field=models.CharField(blank=True, max_length=500),
        ),
        migrations.AddField(
            model_name="group",
            name="verified_token",
            field=models.BigIntegerField(default=0),
        ),
    ]
