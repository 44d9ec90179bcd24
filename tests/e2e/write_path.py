"""The write path as real processes: a segment writer and web under gunicorn, on SQLite and a folder."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.model import BlockMeta
from engine.query.top_functions import TopFunctions, top_functions
from engine.storage import open_store
from tests.migrated import put_sqlite
from tests.processes import ROOT, Processes

COMMAND_SECONDS = 60.0
METRICS_TOKEN = "for-metrics"


def manage(environment: Mapping[str, str], *arguments: str) -> str:
    """Run an operator's command in an installation's environment and return what it printed."""
    ended = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, f"manage.py {' '.join(arguments)}:\n{ended.stdout}{ended.stderr}"
    return ended.stdout


class WritePath:
    """One installation in a folder of its own; bare tenant headers are trusted in it."""

    def __init__(self, home: Path, processes: Processes) -> None:
        self.processes = processes
        self.store_url = f"file://{home}/objects"
        self.database = home / "lithify.sqlite3"
        self.environment = {
            "LITHIFY_HOME": str(home),
            "DATABASE_URL": f"sqlite:///{self.database}",
            "OBJECT_STORE_URL": self.store_url,
            "TRUST_TENANT_HEADER": "1",
            "METRICS_TOKEN": METRICS_TOKEN,
            "DJANGO_SETTINGS_MODULE": "webadmin.settings",
        }
        put_sqlite(self.database)
        self.writer = processes.start_python(
            "writer", "manage.py", "writer", "--instance-id", "writer-1", environment=self.environment
        )
        self.writer.wait_for_line("writer_ready")
        self.web, self.address = processes.start_web(self.environment)

    def manage(self, *arguments: str) -> str:
        """Run an operator's command and return what it printed."""
        return manage(self.environment, *arguments)

    def credential(self, name: str, *scopes: str) -> str:
        """Issue a credential."""
        return self.manage("create_worker_credential", name, *(f"--scope={scope}" for scope in scopes)).strip()

    def found(self, credential: str, tenant: str, selector: str) -> list[dict[str, Any]]:
        """Return the blocks that the index finds for a label selector over the last hour, over REST."""
        now_ms = time.time_ns() // 1_000_000
        query = {
            "tenants": [tenant],
            "start_ms": now_ms - 3_600_000,
            "end_ms": now_ms + 60_000,
            "selector": selector,
        }
        request = urllib.request.Request(
            f"{self.address}/api/v1/blocks/query",
            json.dumps(query).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {credential}"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return list(json.load(answer)["blocks"])

    def top_functions(self, found: list[dict[str, Any]], tenant: str, service: str, profile_type: str) -> TopFunctions:
        """Return where the time went, from the objects of these blocks."""
        blocks = [self._described(block["object_key"]) for block in found]
        return top_functions(open_store(self.store_url), blocks, tenant, service, profile_type, 10)

    def counts(self) -> dict[tuple[str, str], int]:
        """Return how many profiles had which outcome, by tenant."""
        found = self._rows("SELECT tenant, outcome, count FROM ingest_pushcount")
        return {(tenant, outcome): count for tenant, outcome, count in found}

    def _described(self, key: str) -> tuple[str, BlockMeta]:
        ((metadata, size),) = self._rows("SELECT metadata, size_bytes FROM profiles_block WHERE object_key = ?", key)
        return key, replace(decode_metadata(bytes(metadata)), size=size)

    def _rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.database, timeout=10)) as connection:
            return connection.execute(query, parameters).fetchall()
