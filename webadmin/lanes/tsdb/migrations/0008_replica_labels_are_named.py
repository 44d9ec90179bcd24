"""Buckets of Thanos that named no replica labels had the usual ones: now they name them, and their tenants stay."""

from __future__ import annotations

from typing import Any

from django.db import migrations

USUAL = "prometheus_replica,receive_replica,replica,rule_replica"


def name_the_usual(apps: Any, schema_editor: Any) -> None:
    """Write what was meant into the setting."""
    apps.get_model("tsdb", "Bucket").objects.filter(layout="thanos", replica_labels="").update(replica_labels=USUAL)


class Migration(migrations.Migration):
    dependencies = [
        ("tsdb", "0007_blocks_not_taken_in"),
    ]

    operations = [
        migrations.RunPython(name_the_usual, migrations.RunPython.noop),
    ]
