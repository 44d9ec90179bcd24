"""A repository on its own PostgreSQL, for the benchmarks of the catalog's services.

Each benchmark runs in a subprocess with Django set up: ``measured`` starts it and reads its figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from engine.formats.ranges.model import Row
from tests.bench.database import embedded_postgresql, manage
from tests.processes import ROOT


def measured(module: str, *arguments: object) -> dict[str, Any]:
    """Run ``python -m module arguments`` with a new database and store; return the last object that it printed."""
    with embedded_postgresql() as database, tempfile.TemporaryDirectory(prefix="lithify-bench-") as home:
        environment = {"LITHIFY_HOME": home, "DATABASE_URL": database, "LOG_LEVEL": "WARNING"}
        manage(environment, "migrate", "--verbosity", "0")
        answer = subprocess.run(
            [sys.executable, "-m", module, *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        return dict(json.loads(answer.stdout.splitlines()[-1]))


def row(number: int, value: str = "v") -> Row:
    """Return the entry of a number: keys ascend with it and have the length of those in ``catalog_compact``."""
    key = b"data/date=%04d/part-%08d.parquet" % (number // 5_000, number)
    names = f'"address":"data/{number * 7_919:032x}","checksum":"{value}{number * 104_729:031x}"'
    more = '"content_type":"","is_relative":true,"metadata":{}'
    return key, b"%s%015d" % (value.encode(), number), f'{{{names},{more},"size":{number},"written_at":17}}'.encode()


def set_up() -> None:
    """Set up Django in this process."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webadmin.settings")
    import django

    django.setup()


def new_repository(rows: Iterable[Row]) -> Any:
    """Return a repository whose ``main`` has a commit of ascending entries."""
    from webadmin.lanes.catalog.services.commits import NewCommit
    from webadmin.lanes.catalog.services.move_heads import import_entries
    from webadmin.lanes.catalog.services.repositories import NewRepository, create_repository

    new = NewRepository(tenant="bench", name="bench", storage_namespace="local://bench")
    repository = create_repository(new, context=bench_context())

    @contextmanager
    def given() -> Iterator[Iterator[Row]]:
        yield iter(rows)

    import_entries(repository, "main", [b""], given, NewCommit(committer="bench"), context=bench_context())
    return repository


def bench_context() -> Any:
    """Return the actor of actions."""
    from webadmin.base.actions.action import ActionContext

    return ActionContext(actor="bench")


def stage(repository: Any, branch_name: str, rows: Iterable[Row]) -> None:
    """Insert rows into the staging token in bulk, equal to those of single writes."""
    from django.db import connection

    from webadmin.base.database.dialect import insert_rows
    from webadmin.lanes.catalog.models import StagedEntry
    from webadmin.lanes.catalog.services.records import record_named

    record = record_named(repository.pk, branch_name)
    assert record is not None
    at = (int(record.uid), int(record.staging))
    columns = ("branch_id", "key", "token_id", "identity", "payload", "generation", "written_ms")
    insert_rows(StagedEntry, columns, [(at[0], row[0], at[1], row[1], row[2], 1, 0) for row in rows])
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE catalog_stagedentry")


def compact(repository: Any, branch_name: str) -> Any:
    """Compact a branch in this process, as a node does."""
    from tests.webadmin.lanes.catalog.short import Catalog

    return Catalog(repository).compact(branch_name)
