"""Insert the single head of the log and the single row of limits."""

from typing import Any

from django.db import migrations


def add_first_rows(apps: Any, schema_editor: object) -> None:
    apps.get_model("schedule", "LogHead").objects.get_or_create(id=1)
    apps.get_model("schedule", "Limits").objects.get_or_create(id=1)


class Migration(migrations.Migration):
    dependencies = [("schedule", "0001_initial")]
    operations = [migrations.RunPython(add_first_rows, migrations.RunPython.noop)]
