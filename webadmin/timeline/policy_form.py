"""The form of a table's policy: a field for each setting, sizes as people write them, and back into settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminTextInputWidget

from webadmin.console.order_fields import choice_field, number_field, text_field
from webadmin.console.orders import OrderForm
from webadmin.timeline.models import ALIGN, Policy
from webadmin.timeline.policies import GRANULARITY_MAX, NUMBERS, SETTINGS
from webadmin.timeline.policy_words import NUMBER_WORDS, SIZE_UNITS, write_size

TEXT_MAX = 4_000
_SIZE = re.compile(r"(\d+(?:\.\d{1,6})?)\s*([kMGT]?B?)")
_FACTORS = {"": 1, "B": 1} | dict(SIZE_UNITS)


def read_size(text: str) -> int:
    """Return the bytes of ``500 MB``, ``1.5 GB`` or ``1048576``. Raises ValidationError."""
    match = _SIZE.fullmatch(text.strip())
    unit = match[2] + "B" if match and match[2] in ("k", "M", "G", "T") else match[2] if match else ""
    if match is None or unit not in _FACTORS:
        raise ValidationError("Write a size like 500 MB, 1.5 GB, or plain bytes.")
    whole, _, part = match[1].partition(".")
    return int(whole) * _FACTORS[unit] + int(part.ljust(6, "0") or "0") * _FACTORS[unit] // 10**6


class SizeField(forms.CharField):
    """A size in bytes within bounds, written with a unit."""

    def __init__(self, *, low: int, high: int, **told: Any) -> None:
        super().__init__(widget=UnfoldAdminTextInputWidget, max_length=40, **told)
        self.low, self.high = low, high

    def clean(self, value: str) -> int:
        size = read_size(super().clean(value))
        if not self.low <= size <= self.high:
            raise ValidationError(f"It is from {write_size(self.low)} to {write_size(self.high)}.")
        return size


def _field(name: str) -> forms.Field:
    words = NUMBER_WORDS[name]
    if name in NUMBERS:
        low, high = NUMBERS[name]
        if words.unit == "bytes":
            return SizeField(label=words.label, help_text=words.about, low=low, high=high)
        label = f"{words.label} in seconds" if words.unit == "s" else words.label
        return number_field(label, words.about, low=low, high=high, required=True)
    if name == "origin_ms":
        return number_field(words.label, words.about, low=-(1 << 53), high=1 << 53)
    if name == "align":
        return choice_field(words.label, ALIGN, words.about)
    is_required = name in ("granularity", "time_zone")
    length = GRANULARITY_MAX if name == "granularity" else TEXT_MAX
    return text_field(words.label, words.about, length, required=is_required)


class _Settings(OrderForm):
    def clean_sort_columns(self) -> list[str]:
        """Return the names between the commas."""
        return [name.strip() for name in self.cleaned_data["sort_columns"].split(",") if name.strip()]

    def clean_roll_up(self) -> dict[str, Any] | None:
        """Return the JSON that was given; the service says what is wrong within."""
        text = self.cleaned_data["roll_up"].strip()
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise ValidationError(f"This is no JSON: {error}.") from error


PolicyForm = type(
    "PolicyForm",
    (_Settings,),
    {name: _field(name) for name in NUMBER_WORDS}
    | {"__doc__": "All settings of a policy.", "field_order": (*NUMBER_WORDS, "why")},
)


def settings_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a filled form has."""
    return {name: values[name] for name in SETTINGS}


def form_values(policy: Policy) -> dict[str, Any]:
    """Return the settings of a policy as the form shows them."""
    shown: dict[str, Any] = {name: getattr(policy, name) for name in SETTINGS}
    for name, words in NUMBER_WORDS.items():
        if words.unit == "bytes":
            shown[name] = write_size(shown[name])
    shown["sort_columns"] = ", ".join(policy.sort_columns)
    shown["roll_up"] = json.dumps(policy.roll_up) if policy.roll_up else ""
    return shown
