"""Data sources are called tables wherever people read it, and the list of Parquet files a list of files."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("timeline", "0002_chunks_and_tasks"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="badfile",
            options={"ordering": ["-id"], "verbose_name": "file kept out", "verbose_name_plural": "files kept out"},
        ),
        migrations.AlterModelOptions(
            name="chunkorder",
            options={
                "ordering": ["-id"],
                "verbose_name": "order about chunks",
                "verbose_name_plural": "orders about chunks",
            },
        ),
        migrations.AlterModelOptions(
            name="datasource",
            options={"ordering": ["tenant", "name"], "verbose_name": "table"},
        ),
        migrations.AlterModelOptions(
            name="segment",
            options={"ordering": ["source", "start_ms", "path"], "verbose_name": "file"},
        ),
    ]
