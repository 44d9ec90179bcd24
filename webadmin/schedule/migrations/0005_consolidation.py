"""Policies may cap result blocks, and let remnants of several shards go into one job."""

from __future__ import annotations


from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("schedule", "0004_fairness"),
    ]

    operations = [
        migrations.AddField(
            model_name="levelpolicy",
            name="remnant_age_seconds",
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="levelpolicy",
            name="remnant_bytes",
            field=models.PositiveBigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="levelpolicy",
            name="result_bytes_max",
            field=models.PositiveBigIntegerField(default=0),
        ),
    ]
