"""Folders and tenants whose round broke off are left alone for a while."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tsdb", "0003_whole_listings"),
    ]

    operations = [
        migrations.AddField(
            model_name="folder",
            name="trouble",
            field=models.CharField(blank=True, max_length=500),
        ),
        migrations.AddField(
            model_name="folder",
            name="failures",
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="folder",
            name="again_at_ms",
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="buckettenant",
            name="failures",
            field=models.PositiveIntegerField(default=0),
        ),
    ]
