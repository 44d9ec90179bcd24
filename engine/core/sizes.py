"""Sizes as people read them, the same in the reasons of planners and on every page."""

from __future__ import annotations

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(count: int) -> str:
    """Return bytes with three digits that matter: ``34.1 KiB``."""
    number, unit = float(count), 0
    while abs(number) >= 1000 and unit < len(UNITS) - 1:
        number, unit = number / 1024, unit + 1
    digits = 0 if unit == 0 or number >= 100 else 1
    return f"{number:.{digits}f} {UNITS[unit]}"
