"""Rows W8 and W12 of the sheet: what a merge takes from its job, and where blocks lie."""

from __future__ import annotations

import pytest

from engine.formats.profile_block.container.object_names import block_key
from engine.lanes.profiles.merge.merge import plan_outputs
from engine.storage import ObjectStore
from tests.engine.formats.profile_block.factories import Dataset, merge_spec, row, write_block

IDS = [f"01JKT3DJRETWN25NKEFZNEP1V{number}" for number in range(3)]


@pytest.mark.row("W8")
def test_sources_keep_their_order_and_have_their_sizes(store: ObjectStore) -> None:
    """Metadata travels in the job; it is not fetched from footers."""
    sources = [write_block(store, [Dataset("acme", "api", (row(id=n),))], id=IDS[n]) for n in (2, 0, 1)]
    [output] = plan_outputs(merge_spec(sources))
    [plan] = output.datasets
    assert [source.key for source in plan.sources] == [source.key for source in sources]
    assert [source.object_size for source in plan.sources] == [store.head(source.key).size for source in sources]


@pytest.mark.row("W12")
@pytest.mark.parametrize(
    ("level", "tenant", "key"),
    [(0, "", f"segments/7/anonymous/{IDS[0]}/block.bin"), (1, "acme", f"blocks/7/acme/{IDS[0]}/block.bin")],
)
def test_segments_are_stored_under_the_anonymous_tenant(level: int, tenant: str, key: str) -> None:
    assert block_key(7, tenant, level, IDS[0]) == key
