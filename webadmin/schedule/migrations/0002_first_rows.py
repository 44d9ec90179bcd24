"""The one head, the one row of limits, and the default policies of the profiles lane."""

from django.db import migrations

PROFILE_LEVELS = [  # level, blocks at most, age of the oldest in seconds
    (0, 20, 36),
    (1, 10, 720),
    (2, 10, 10_800),
]
SPREAD_SECONDS = 3 * 3600


def add_first_rows(apps, schema_editor):
    apps.get_model("schedule", "LogHead").objects.get_or_create(id=1)
    apps.get_model("schedule", "Limits").objects.get_or_create(id=1)
    level_policies = apps.get_model("schedule", "LevelPolicy").objects
    for level, blocks_max, age_seconds in PROFILE_LEVELS:
        level_policies.get_or_create(
            lane="profiles",
            level=level,
            defaults={"blocks_max": blocks_max, "age_seconds": age_seconds, "spread_seconds": SPREAD_SECONDS},
        )


class Migration(migrations.Migration):
    dependencies = [("schedule", "0001_initial")]
    operations = [migrations.RunPython(add_first_rows, migrations.RunPython.noop)]
