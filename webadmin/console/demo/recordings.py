"""Recorded profiles of real programs, kept between runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from webadmin.console.demo.plan import Recording


def ensure_recordings(folder: Path, on_recorded: Callable[[int, int], None]) -> list[Recording]:
    raise NotImplementedError
