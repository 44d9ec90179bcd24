"""A catalog behind a real web process, and keys for it: what programs with the SDKs of lakeFS are pointed at."""

from __future__ import annotations

import json
from pathlib import Path

import lakefs

from tests.e2e.write_path import manage
from tests.migrated import put_sqlite
from tests.processes import Processes


class CatalogService:
    """One installation in a folder of its own, on SQLite and local folders."""

    def __init__(self, home: Path, processes: Processes) -> None:
        self.home = home
        self.environment = {
            "LITHIFY_HOME": str(home),
            "DATABASE_URL": f"sqlite:///{home / 'lithify.sqlite3'}",
            "OBJECT_STORE_URL": f"file://{home}/objects",
            "TABLES_URL": f"file://{home}/tables",
            "DJANGO_SETTINGS_MODULE": "webadmin.settings",
        }
        put_sqlite(home / "lithify.sqlite3")
        self.web, self.address = processes.start_web(self.environment)

    def key(self, name: str, *options: str, tenant: str = "acme") -> dict[str, str]:
        """Make an access key."""
        told = manage(self.environment, "catalog", "access-key", name, "--tenant", tenant, "--json", *options)
        return dict(json.loads(told))

    def client(self, key: dict[str, str]) -> lakefs.Client:
        """Return the SDK's client, configured as people do."""
        return lakefs.Client(
            host=f"{self.address}/lakefs/api/v1",
            username=key["access_key_id"],
            password=key["secret_access_key"],
        )
