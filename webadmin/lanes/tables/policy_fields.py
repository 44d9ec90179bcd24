"""The settings of a table's policy as a field of actions: an object in JSON, an input for each setting in forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from rest_framework import serializers
from unfold.widgets import UnfoldAdminTextInputWidget

from engine.protocol.fields import Fields
from webadmin.adminkit.setting_words import setting, write_size
from webadmin.base.actions.fields import ActionField, Choice, Number, Text
from webadmin.lanes.tables.models import ALIGN, Policy
from webadmin.lanes.tables.policies import GRANULARITY_MAX, NUMBERS, SETTINGS
from webadmin.lanes.tables.policy_words import NUMBER_WORDS

if TYPE_CHECKING:
    from webadmin.base.actions.fields import Schema

TEXT_MAX = 4_000
ORIGIN_MAX = 1 << 53


class ColumnsField(forms.CharField):
    """Names separated by commas."""

    def clean(self, value: str) -> list[str]:
        return [name.strip() for name in super().clean(value).split(",") if name.strip()]


class JsonField(forms.CharField):
    """A JSON value, or nothing; the service validates its content."""

    def clean(self, value: str) -> Any:
        text = super().clean(value).strip()
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise ValidationError(f"This is no JSON: {error}.") from error


@dataclass(frozen=True, kw_only=True)
class PolicyField(ActionField):
    """Settings by name; the service validates them."""

    def read(self, fields: Fields) -> dict[str, Any]:
        given = fields.optional(self.name)
        return {} if given is None else dict(given.values)

    def schema(self) -> Schema:
        return serializers.DictField, {}

    def form_fields(self) -> dict[str, forms.Field]:
        return {name: _input(name) for name in NUMBER_WORDS}

    def from_form(self, cleaned: Mapping[str, Any]) -> dict[str, Any]:
        return {name: cleaned[name] for name in SETTINGS}

    def option(self) -> dict[str, Any]:
        return super().option() | {"type": json.loads, "metavar": "JSON"}

    def from_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return dict(options.get(self.key, {}))


def _input(name: str) -> forms.Field:
    words = NUMBER_WORDS[name]
    if name in NUMBERS:
        return setting(name, words, *NUMBERS[name]).form_field()
    if name == "origin_ms":
        return Number(name, words.label, words.about, low=-ORIGIN_MAX, high=ORIGIN_MAX).form_field()
    if name == "align":
        return Choice(name, words.label, words.about, choices=tuple(ALIGN), is_required=True).form_field()
    if name in ("granularity", "time_zone"):
        length = GRANULARITY_MAX if name == "granularity" else TEXT_MAX
        return Text(name, words.label, words.about, length_max=length, is_required=True).form_field()
    kind = JsonField if name == "roll_up" else ColumnsField
    return kind(
        label=words.label,
        help_text=words.about,
        max_length=TEXT_MAX,
        required=False,
        widget=UnfoldAdminTextInputWidget,
    )


def form_values(policy: Policy) -> dict[str, Any]:
    """Return the settings of a policy as initial values of the form."""
    shown: dict[str, Any] = {name: getattr(policy, name) for name in SETTINGS}
    for name, words in NUMBER_WORDS.items():
        if words.unit == "bytes":
            shown[name] = write_size(shown[name])
    shown["sort_columns"] = ", ".join(policy.sort_columns)
    shown["roll_up"] = json.dumps(policy.roll_up) if policy.roll_up else ""
    return shown
