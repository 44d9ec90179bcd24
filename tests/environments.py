"""Environments of tests."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from engine.settings.listing import PROCESSES


def set_only(monkeypatch: pytest.MonkeyPatch, values: Mapping[str, str]) -> None:
    """Set these settings of Lithify in the environment, and no others."""
    for kinds in PROCESSES.values():
        for name in {name for kind in kinds for name in kind.model_fields}:
            monkeypatch.delenv(name, raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
