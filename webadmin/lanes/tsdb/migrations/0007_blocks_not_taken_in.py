"""Folders count the blocks that could not be taken in; the next scan fills the counts."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tsdb", "0006_turns_at_the_index"),
    ]

    operations = [
        migrations.AddField(
            model_name="folder",
            name="bad",
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="folder",
            name="partial",
            field=models.PositiveIntegerField(default=0),
        ),
    ]
