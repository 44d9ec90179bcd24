"""The level policies of a fresh installation."""

from typing import Any

from django.db import migrations

PROFILE_LEVELS = [  # level, maximum blocks, age of the oldest in seconds
    (0, 20, 36),
    (1, 10, 720),
    (2, 10, 10_800),
]
SPREAD_SECONDS = 3 * 3600


def add_level_policies(apps: Any, schema_editor: object) -> None:
    level_policies = apps.get_model("profiles", "LevelPolicy").objects
    for level, blocks_max, age_seconds in PROFILE_LEVELS:
        level_policies.get_or_create(
            lane="profiles",
            level=level,
            defaults={"blocks_max": blocks_max, "age_seconds": age_seconds, "spread_seconds": SPREAD_SECONDS},
        )


class Migration(migrations.Migration):
    dependencies = [("profiles", "0002_block_fillfactor")]
    operations = [migrations.RunPython(add_level_policies, migrations.RunPython.noop)]
