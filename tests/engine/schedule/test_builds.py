"""Which build is newer."""

from __future__ import annotations

import pytest

from engine.schedule.builds import is_newer


@pytest.mark.parametrize(
    ("build", "than", "newer"),
    [
        ("0.2.0", "0.1.9", True),
        ("0.10.0", "0.9.0", True),  # not as texts
        ("0.1.0", "0.1.0", False),
        ("0.1.0", "0.2.0", False),
        ("1.0rc1", "1.0", False),
        ("1.0+fix", "1.0", True),
        ("a1b2c3", "0.1.0", True),
        ("a1b2c3", "a1b2c3", False),
        ("", "0.1.0", True),
    ],
)
def test_versions_are_compared_as_versions_and_other_names_only_by_being_others(
    build: str, than: str, newer: bool
) -> None:
    assert is_newer(build, than) is newer
