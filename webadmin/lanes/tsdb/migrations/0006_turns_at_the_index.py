"""Whoever writes a tenant's bucket index takes a turn."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tsdb", "0005_looks_at_sources"),
    ]

    operations = [
        migrations.AddField(
            model_name="buckettenant",
            name="index_writer_until_ms",
            field=models.BigIntegerField(null=True),
        ),
    ]
