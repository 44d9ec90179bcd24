"""Waiting jobs of one lane and tenant are found by an index."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("schedule", "0005_consolidation"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("state", "waiting")),
                fields=["state", "lane", "tenant", "priority_ms", "name"],
                name="job_waiting_of_tenant",
            ),
        ),
    ]
