"""Count the load of a branch over all processes and restarts, without a row that every write would lock.

A write is counted with probability 1 / ``ONE_IN`` and weight ``ONE_IN``: the expected sum is exact, and precise enough
for the decision to compact. Batches of at least ``ONE_IN`` are counted exactly.
"""

from __future__ import annotations

import logging
import random

from django.db import DatabaseError

from engine.lanes.catalog.view import Page
from webadmin.base.database.dialect import clock_ms
from webadmin.base.database.upserts import add_to_row
from webadmin.lanes.catalog.models import BranchLoad

log = logging.getLogger(__name__)

ONE_IN = 16
WASTE = 20
"""A listing is wasteful if it scanned at least this many rows per returned item ..."""
WASTE_MIN = 2_000
"""... and at least this many rows in total."""


def note_writes(branch_id: int, *, rows: int = 0, tombstones: int = 0) -> None:
    """Count staged rows, and how many of them are tombstones."""
    _add(branch_id, rows=_sampled(rows), tombstones=_sampled(tombstones))


def note_listing(branch_id: int, page: Page) -> None:
    """Count a listing that scanned far more rows than it returned."""
    examined = page.staged_rows + page.base_rows
    if examined >= max(WASTE_MIN, WASTE * len(page.items)):
        _add(branch_id, wasteful_lists=1)


def forget_load(branch_id: int) -> None:
    """Reset the counts: the staged rows were committed, compacted or dropped."""
    BranchLoad.objects.filter(pk=branch_id).delete()


def _sampled(count: int) -> int:
    if not 0 < count < ONE_IN:
        return count
    return ONE_IN if random.random() < count / ONE_IN else 0


def _add(branch_id: int, **counts: int) -> None:
    if not any(counts.values()):
        return
    try:
        add_to_row(BranchLoad, "branch_id", branch_id, counts, {"changed_ms": clock_ms()})
    except DatabaseError as error:
        log.warning("load_not_counted branch=%s error=%s", branch_id, error)
