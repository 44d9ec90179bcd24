"""Form of a table's policy: a field for each setting, sizes with units, and conversion to settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from webadmin.adminkit.order_fields import choice_field, number_field, text_field
from webadmin.adminkit.orders import OrderForm
from webadmin.adminkit.setting_labels import setting_field, write_size
from webadmin.lanes.tables.admin.policy_labels import NUMBER_LABELS
from webadmin.lanes.tables.models import ALIGN, Policy
from webadmin.lanes.tables.policies import GRANULARITY_MAX, NUMBERS, SETTINGS

TEXT_MAX = 4_000


def _field(name: str) -> forms.Field:
    words = NUMBER_LABELS[name]
    if name in NUMBERS:
        low, high = NUMBERS[name]
        return setting_field(words, low, high)
    if name == "origin_ms":
        return number_field(words.label, words.about, low=-(1 << 53), high=1 << 53)
    if name == "align":
        return choice_field(words.label, ALIGN, words.about)
    is_required = name in ("granularity", "time_zone")
    length = GRANULARITY_MAX if name == "granularity" else TEXT_MAX
    return text_field(words.label, words.about, length, required=is_required)


class _Settings(OrderForm):
    def clean_sort_columns(self) -> list[str]:
        """Return the comma-separated names."""
        return [name.strip() for name in self.cleaned_data["sort_columns"].split(",") if name.strip()]

    def clean_roll_up(self) -> dict[str, Any] | None:
        """Return the JSON value; the service validates its content."""
        text = self.cleaned_data["roll_up"].strip()
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise ValidationError(f"This is no JSON: {error}.") from error


PolicyForm = type(
    "PolicyForm",
    (_Settings,),
    {name: _field(name) for name in NUMBER_LABELS}
    | {"__doc__": "All settings of a policy.", "field_order": (*NUMBER_LABELS, "why")},
)


def settings_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a valid form."""
    return {name: values[name] for name in SETTINGS}


def form_values(policy: Policy) -> dict[str, Any]:
    """Return the settings of a policy as initial values of the form."""
    shown: dict[str, Any] = {name: getattr(policy, name) for name in SETTINGS}
    for name, words in NUMBER_LABELS.items():
        if words.unit == "bytes":
            shown[name] = write_size(shown[name])
    shown["sort_columns"] = ", ".join(policy.sort_columns)
    shown["roll_up"] = json.dumps(policy.roll_up) if policy.roll_up else ""
    return shown
