"""Leave half of each page of blocks free on PostgreSQL.

The next version of a row then fits into the same page: unchanged bytes are not logged, and no index is written unless
one of its columns changes.
"""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def set_fillfactor(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE profiles_block SET (fillfactor = 50)")


class Migration(migrations.Migration):
    dependencies = [("profiles", "0001_initial")]
    operations = [migrations.RunPython(set_fillfactor, migrations.RunPython.noop)]
