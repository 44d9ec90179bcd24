"""Row 37 of the profile API sheet: how many nodes a request gets."""

from __future__ import annotations

import pytest

from engine.query.errors import InvalidQuestion
from webadmin.query.viewers.shown_nodes import shown_nodes_of


def test_no_requested_number_is_the_default_and_no_maximum_allows_all_nodes() -> None:
    assert shown_nodes_of(0, default=10) == 10
    assert shown_nodes_of(-1, most=0) == -1


@pytest.mark.parametrize("wanted", [10, -1])
def test_beyond_the_bound_is_refused(wanted: int) -> None:
    with pytest.raises(InvalidQuestion):
        shown_nodes_of(wanted, most=5)
