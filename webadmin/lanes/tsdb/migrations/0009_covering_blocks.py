"""Steps of the outbox name the blocks that hold a duplicate's data; open ones had them in their words only."""

from __future__ import annotations

import re
from typing import Any

from django.db import migrations, models

BEGINNING = "all it holds is in "
ULID = re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b")


def name_covering(apps: Any, schema_editor: Any) -> None:
    """Take the ids out of the words of open steps."""
    steps = apps.get_model("tsdb", "OutboxStep").objects
    open_steps = steps.filter(done_at_ms=None, kind="mark_deletion", detail__startswith=BEGINNING)
    for step in open_steps.iterator():
        steps.filter(id=step.id).update(covered_by=ULID.findall(step.detail))


class Migration(migrations.Migration):
    dependencies = [
        ("tsdb", "0008_replica_labels_are_named"),
    ]

    operations = [
        migrations.AddField(
            model_name="outboxstep",
            name="covered_by",
            field=models.JSONField(default=list),
        ),
        migrations.RunPython(name_covering, migrations.RunPython.noop),
    ]
