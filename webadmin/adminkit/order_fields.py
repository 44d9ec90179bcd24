"""Form fields of actions, with the widgets of the theme."""

from __future__ import annotations

from collections.abc import Sequence

from django import forms
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget, UnfoldBooleanSwitchWidget


def text_field(
    label: str, about: str, length: int = 250, *, required: bool = False, initial: str = ""
) -> forms.CharField:
    """Return a field for one line of text."""
    return forms.CharField(
        label=label,
        help_text=about,
        max_length=length,
        required=required,
        initial=initial,
        widget=UnfoldAdminTextInputWidget,
    )


def number_field(
    label: str, about: str, *, low: int, high: int, initial: int | None = None, required: bool = False
) -> forms.IntegerField:
    """Return a field for a whole number from ``low`` to ``high``; empty is None."""
    return forms.IntegerField(
        label=label,
        help_text=about,
        min_value=low,
        max_value=high,
        required=required,
        initial=initial,
        widget=UnfoldAdminTextInputWidget(attrs={"inputmode": "numeric"}),
    )


def choice_field(
    label: str, choices: Sequence[tuple[str, str]], about: str = "", *, required: bool = True
) -> forms.ChoiceField:
    """Return a field for one of several choices."""
    return forms.ChoiceField(
        label=label, choices=choices, help_text=about, required=required, widget=UnfoldAdminSelectWidget
    )


def switch_field(label: str, about: str) -> forms.BooleanField:
    """Return a field for a boolean."""
    return forms.BooleanField(label=label, help_text=about, required=False, widget=UnfoldBooleanSwitchWidget)


def moment_field(label: str, about: str) -> forms.DateTimeField:
    """Return a field for a moment in UTC; empty is None."""
    return forms.DateTimeField(
        label=label,
        help_text=about,
        required=False,
        widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "2026-11-21 08:00"}),
    )
