"""Two stores that overlap are added at the same time: the later one sees the other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.webadmin.service import Service
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.tables.errors import TableExists
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tables.services import sources
from webadmin.lanes.tables.services.sources import NewTable, create_table


def test_of_two_tables_that_overlap_and_are_created_at_once_one_is_refused(
    real_service: Service, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.STORE_ROOTS = [tmp_path.as_uri()]
    both_checked = threading.Barrier(2)
    monkeypatch.setattr(sources, "check_place", lambda store: both_checked.wait(10) and ())

    def create(place: str) -> str:
        new = NewTable(
            tenant="acme", name=place.replace("/", "-"), url=f"{tmp_path.as_uri()}/{place}", time_column="ts"
        )
        try:
            create_table(new, context=ActionContext(actor="test", why="a test"))
        except TableExists as error:
            return str(error)
        finally:
            connection.close()
        return ""

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(create, ["lake", "lake/events"]))
    assert sorted(map(bool, answers)) == [False, True]
    assert DataSource.objects.count() == 1
