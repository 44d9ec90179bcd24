"""Display and input of settings: labels, descriptions, sizes with their unit.

Sizes are shown in the units of all other pages (``formatting.size_text``); in forms they are exact, in the units in
which they were set: powers of 1024 or of 1000.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminTextInputWidget

from webadmin.adminkit import formatting as show
from webadmin.base.actions.fields import Number

BINARY_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
DECIMAL_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_SIZE = re.compile(r"(\d+(?:\.\d{1,6})?)\s*([kMGT]B?|[KMGT]iB|B?)")
_FACTORS = {"": 1, "B": 1} | dict((*BINARY_UNITS, *DECIMAL_UNITS))


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingLabel:
    """The label of a setting, and its description."""

    label: str
    about: str
    unit: str = ""


def write_size(size: int) -> str:
    """Return bytes exactly, in the unit with the smallest whole number, as forms accept it: ``500 MiB``."""
    whole = [(size // factor, unit) for unit, factor in (*BINARY_UNITS, *DECIMAL_UNITS) if size and size % factor == 0]
    return " ".join(map(str, min(whole))) if whole else str(size)


def read_size(text: str) -> int:
    """Parse a size such as ``500 MiB``, ``1.5 GB`` or ``1048576``. Raises ValidationError."""
    match = _SIZE.fullmatch(text.strip())
    unit = match[2] + "B" if match and match[2] in ("k", "M", "G", "T") else match[2] if match else ""
    if match is None or unit not in _FACTORS:
        raise ValidationError("Enter a size such as 500 MiB or 1.5 GB, or a number of bytes.")
    whole, _, part = match[1].partition(".")
    return int(whole) * _FACTORS[unit] + int(part.ljust(6, "0") or "0") * _FACTORS[unit] // 10**6


class SizeField(forms.CharField):
    """A size in bytes within bounds, written with a unit."""

    def __init__(self, *, low: int, high: int, **options: Any) -> None:
        super().__init__(widget=UnfoldAdminTextInputWidget, max_length=40, **options)
        self.low, self.high = low, high

    def clean(self, value: str) -> int | None:
        text = super().clean(value)
        if not text:
            return None
        size = read_size(text)
        if not self.low <= size <= self.high:
            raise ValidationError(f"Expected a size from {write_size(self.low)} to {write_size(self.high)}.")
        return size


@dataclass(frozen=True, kw_only=True)
class Size(Number):
    """A size in bytes; in forms and options with a unit."""

    def form_field(self) -> forms.Field:
        return SizeField(low=self.low, high=self.high, label=self.label, help_text=self.about, required=False)

    def option(self) -> dict[str, Any]:
        return super().option() | {"type": read_size, "metavar": "SIZE"}


def setting(name: str, words: SettingLabel, low: int, high: int) -> Number:
    """Return the field of a numeric setting."""
    if words.unit == "bytes":
        return Size(name=name, label=words.label, about=words.about, low=low, high=high)
    label = f"{words.label} in seconds" if words.unit == "s" else words.label
    return Number(name, label, words.about, low=low, high=high)


def number_text(value: int, unit: str) -> str:
    """Return the value of a numeric setting as text."""
    if unit == "bytes":
        return show.size_text(value)
    if unit == "s":
        return show.duration_text(value * 1000) if value else "0"
    return f"{value}{show.GAP}{unit}" if unit else str(value)
