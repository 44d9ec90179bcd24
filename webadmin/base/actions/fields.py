"""Fields of actions. Each reads its value from JSON, forms and options of commands, within the same bounds."""

from __future__ import annotations

import functools
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django import forms
from rest_framework import serializers
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget, UnfoldBooleanSwitchWidget

from engine.protocol.fields import COUNT_MAX, Fields

if TYPE_CHECKING:
    AnyField = serializers.Field[Any, Any, Any, Any]
    Schema = tuple[type[AnyField], dict[str, Any]]

NONE = "none"
"""Option of a command that stands for null."""
MOMENT_LENGTH_MAX = 40
EMPTY: tuple[Any, ...] = (None, "", [])


def as_given(value: Any) -> Any:
    """Return a value unchanged."""
    return value


@dataclass(frozen=True)
class ActionField:
    """A value of an action.

    ``name`` is its name in JSON, ``input_name`` in forms and options of commands where that differs. An optional field
    that is not given has the value ``default``. A nullable field accepts null; if it is required too, null is given
    explicitly, because a misspelt name must not remove a value.
    """

    name: str
    label: str
    about: str = ""
    _: KW_ONLY
    input_name: str = ""
    is_required: bool = False
    is_nullable: bool = False
    default: Any = None
    initial: Any = None

    @property
    def key(self) -> str:
        """Return the name in forms and options."""
        return self.input_name or self.name

    def read(self, fields: Fields) -> Any:
        """Return the value of a JSON object. Raises InvalidMessage."""
        is_given = self.name in fields.values
        if not is_given and self.is_required and self.is_nullable:
            raise fields.error(self.name, f"expected {self.expected()}, or null to remove the value")
        if not is_given and not self.is_required:
            return self.default
        if fields.values.get(self.name) is None and (self.is_nullable or (self.default is None and is_given)):
            if self.is_required and not self.is_nullable:
                raise fields.error(self.name, f"expected {self.expected()}")
            return None
        return self.read_given(fields)

    def expected(self) -> str:
        """Return what the field accepts, for errors."""
        return "a value"

    def read_given(self, fields: Fields) -> Any:
        """Return the value of a field that is present."""
        raise NotImplementedError

    def serializer(self) -> AnyField:
        """Return the field of the OpenAPI schema."""
        kind, options = self.schema()
        options = options | {"required": self.is_required, "help_text": self.about}
        if self.is_nullable or (self.default is None and not self.is_required):
            options["allow_null"] = True
        return kind(**options)

    def schema(self) -> Schema:
        """Return the class of the serializer's field, and its arguments."""
        raise NotImplementedError

    def form_fields(self) -> dict[str, forms.Field]:
        """Return the form fields by name."""
        return {self.key: self.form_field()}

    def form_field(self) -> forms.Field:
        """Return the field of the form."""
        raise NotImplementedError

    def from_form(self, cleaned: Mapping[str, Any]) -> Any:
        """Return the value of a valid form; an empty input is the default."""
        value = cleaned[self.key]
        return self.default if value in EMPTY else self.from_input(value)

    def from_input(self, value: Any) -> Any:
        """Return the value of an input that is not empty."""
        return value

    def add_option(self, parser: ArgumentParser, positional: Collection[str] = ()) -> None:
        """Add the option of a command; without dashes if it is among ``positional``."""
        options = self.option()
        if self.is_required and self.is_nullable:
            options["help"] = f"{options['help']}; {NONE}: remove the value"
        if self.key in positional:
            options |= {} if self.is_required or "nargs" in options else {"nargs": "?"}
            parser.add_argument(self.key, **options)
        else:
            flag = f"--{self.key.replace('_', '-')}"
            parser.add_argument(flag, dest=self.key, default=SUPPRESS, required=self.is_required, **options)

    def option(self) -> dict[str, Any]:
        """Return the arguments of ``add_argument``."""
        return {"help": self.about or self.label}

    def from_options(self, options: Mapping[str, Any]) -> Any:
        """Return the value of the options of a command."""
        value = options.get(self.key)
        if value is None:
            return self.default
        return None if value == NONE and self.is_nullable else self.from_input(value)

    def _form_options(self) -> dict[str, Any]:
        initial = self.initial if self.initial is not None else self.default
        return {
            "label": self.label,
            "help_text": self.about,
            "required": self.is_required and not self.is_nullable,
            "initial": ", ".join(map(str, initial)) if isinstance(initial, tuple | list) else initial,
        }


@dataclass(frozen=True, kw_only=True)
class Text(ActionField):
    """A line of text."""

    length_max: int
    default: Any = ""

    def read_given(self, fields: Fields) -> str:
        return fields.text(self.name, self.length_max, empty=not self.is_required)

    def schema(self) -> Schema:
        return serializers.CharField, {"allow_blank": not self.is_required}

    def form_field(self) -> forms.Field:
        return forms.CharField(max_length=self.length_max, widget=UnfoldAdminTextInputWidget, **self._form_options())


@dataclass(frozen=True, kw_only=True)
class Number(ActionField):
    """A whole number from ``low`` to ``high``."""

    low: int = 0
    high: int = COUNT_MAX

    def expected(self) -> str:
        return f"an integer from {self.low} to {self.high}"

    def read_given(self, fields: Fields) -> int:
        return fields.integer(self.name, self.low, self.high)

    def schema(self) -> Schema:
        return serializers.IntegerField, {"min_value": self.low, "max_value": self.high}

    def form_field(self) -> forms.Field:
        widget = UnfoldAdminTextInputWidget(attrs={"inputmode": "numeric"})
        return forms.IntegerField(min_value=self.low, max_value=self.high, widget=widget, **self._form_options())

    def option(self) -> dict[str, Any]:
        return super().option() | {"type": _number_or_none if self.is_nullable else int, "metavar": "NUMBER"}


@dataclass(frozen=True, kw_only=True)
class Choice(ActionField):
    """One of several values, with their labels; ``make`` converts it."""

    choices: tuple[tuple[str, str], ...]
    make: Callable[[str], Any] = as_given

    def read_given(self, fields: Fields) -> Any:
        return self.make(fields.choice(self.name, [value for value, _ in self.choices]))

    def schema(self) -> Schema:
        return serializers.ChoiceField, {"choices": [value for value, _ in self.choices]}

    def form_field(self) -> forms.Field:
        options = self._form_options()
        choices = self.choices
        if not self.is_required and self.default is None:
            choices = (("", "---------"), *choices)
        elif self.default is not None:
            options["initial"] = str(self.default)
        return forms.ChoiceField(choices=choices, widget=UnfoldAdminSelectWidget, **options)

    def from_input(self, value: Any) -> Any:
        return self.make(value)

    def option(self) -> dict[str, Any]:
        return super().option() | {"choices": [value for value, _ in self.choices]}


@dataclass(frozen=True, kw_only=True)
class Switch(ActionField):
    """A boolean."""

    default: Any = False

    def read_given(self, fields: Fields) -> bool:
        return _boolean(fields, self.name)

    def schema(self) -> Schema:
        return serializers.BooleanField, {}

    def form_field(self) -> forms.Field:
        options = self._form_options() | {"required": False}
        return forms.BooleanField(widget=UnfoldBooleanSwitchWidget, **options)

    def from_form(self, cleaned: Mapping[str, Any]) -> bool:
        return bool(cleaned[self.key])

    def option(self) -> dict[str, Any]:
        return super().option() | {"action": BooleanOptionalAction if self.default else "store_true"}


@dataclass(frozen=True, kw_only=True)
class YesOrNo(ActionField):
    """A boolean that may be left as it is."""

    def expected(self) -> str:
        return "true or false"

    def read_given(self, fields: Fields) -> bool:
        return _boolean(fields, self.name)

    def schema(self) -> Schema:
        return serializers.BooleanField, {}

    def form_field(self) -> forms.Field:
        choices = [("", "---------"), ("yes", "yes"), ("no", "no")]
        return forms.ChoiceField(choices=choices, widget=UnfoldAdminSelectWidget, **self._form_options())

    def from_input(self, value: str) -> bool:
        return value == "yes"

    def option(self) -> dict[str, Any]:
        return super().option() | {"choices": ["yes", "no"]}


@dataclass(frozen=True, kw_only=True)
class Moment(ActionField):
    """A moment: in JSON ISO 8601, in forms and options too; the default zone is UTC."""

    def expected(self) -> str:
        return "a date and time in ISO 8601"

    def read_given(self, fields: Fields) -> Any:
        try:
            return moment(fields.text(self.name, MOMENT_LENGTH_MAX))
        except ValueError as error:
            raise fields.error(self.name, f"expected {self.expected()}") from error

    def schema(self) -> Schema:
        return serializers.DateTimeField, {}

    def form_field(self) -> forms.Field:
        widget = UnfoldAdminTextInputWidget(attrs={"placeholder": "2026-11-21 08:00"})
        return forms.DateTimeField(widget=widget, **self._form_options())

    def from_input(self, value: datetime) -> Any:
        return value.astimezone(UTC)

    def option(self) -> dict[str, Any]:
        return super().option() | {"type": _moment_or_none if self.is_nullable else moment, "metavar": "TIME"}


@dataclass(frozen=True, kw_only=True)
class MomentMs(Moment):
    """A moment as unix milliseconds: in JSON a number, in forms and options ISO 8601."""

    def read_given(self, fields: Fields) -> int:
        return fields.integer(self.name, 0, COUNT_MAX)

    def schema(self) -> Schema:
        return serializers.IntegerField, {}

    def from_input(self, value: datetime) -> int:
        return round(value.timestamp() * 1000)


@dataclass(frozen=True, kw_only=True)
class Texts(ActionField):
    """A list of texts; in forms they are separated by commas or spaces."""

    length_max: int
    count_max: int
    default: Any = ()

    def read_given(self, fields: Fields) -> tuple[str, ...]:
        items = fields.items(self.name, self.count_max)
        path = f"{fields.path}.{self.name}"
        return tuple(Fields(path, {"item": item}).text("item", self.length_max, empty=False) for item in items)

    def schema(self) -> Schema:
        return serializers.ListField, {"child": serializers.CharField()}

    def form_field(self) -> forms.Field:
        length = (self.length_max + 1) * self.count_max
        return forms.CharField(max_length=length, widget=UnfoldAdminTextInputWidget, **self._form_options())

    def from_input(self, value: str | Sequence[str]) -> tuple[str, ...]:
        return tuple(value.replace(",", " ").split() if isinstance(value, str) else value)

    def option(self) -> dict[str, Any]:
        return super().option() | {"nargs": "+" if self.is_required else "*"}


class NumbersField(forms.CharField):
    """Whole numbers, separated by commas or spaces."""

    def clean(self, value: str) -> list[int]:
        parts = super().clean(value).replace(",", " ").split()
        if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
            raise forms.ValidationError("Give whole numbers, separated by commas.")
        return [int(part) for part in parts]


@dataclass(frozen=True, kw_only=True)
class Numbers(ActionField):
    """A list of whole numbers from ``low`` to ``high``."""

    low: int
    high: int
    count_max: int
    default: Any = ()

    def read_given(self, fields: Fields) -> list[int]:
        items = fields.items(self.name, self.count_max)
        path = f"{fields.path}.{self.name}"
        return [Fields(path, {"item": item}).integer("item", self.low, self.high) for item in items]

    def schema(self) -> Schema:
        return serializers.ListField, {"child": serializers.IntegerField()}

    def form_field(self) -> forms.Field:
        length = (len(str(self.high)) + 2) * self.count_max
        return NumbersField(max_length=length, widget=UnfoldAdminTextInputWidget, **self._form_options())

    def option(self) -> dict[str, Any]:
        return super().option() | {"type": int, "nargs": "+"}


@dataclass(frozen=True, kw_only=True)
class Group(ActionField):
    """Several values that make one: an object in JSON, separate inputs in forms, separate options in commands.

    ``component`` names it in the OpenAPI schema. ``is_partial``: it has only those values that are given; in forms
    texts always are.
    """

    fields: tuple[ActionField, ...]
    make: Callable[..., Any] = dict
    component: str
    is_partial: bool = False

    def read(self, fields: Fields) -> Any:
        if self.is_nullable and self.name in fields.values and fields.values[self.name] is None:
            return None
        if self.is_nullable and self.is_required and self.name not in fields.values:
            raise fields.error(self.name, "expected an object, or null to remove the value")
        inside = fields.optional(self.name) or Fields(f"{fields.path}.{self.name}", {})
        return self.read_object(inside)

    def read_object(self, fields: Fields) -> Any:
        """Return the value of the object. Raises InvalidMessage."""
        return self._make(lambda field: field.read(fields), lambda field: field.name in fields.values)

    def serializer(self) -> AnyField:
        return self.serializer_class()(required=self.is_required, help_text=self.about, allow_null=self.is_nullable)

    @functools.cache  # noqa: B019 - declarations live as long as the process
    def serializer_class(self) -> type[serializers.Serializer[Any]]:
        """Return the class of the object in the OpenAPI schema."""
        return serializer_of(f"{self.component}Serializer", self.fields, self.about or self.label)

    def form_fields(self) -> dict[str, forms.Field]:
        return {name: field for each in self.fields for name, field in each.form_fields().items()}

    def from_form(self, cleaned: Mapping[str, Any]) -> Any:
        return self._make(
            lambda field: field.from_form(cleaned),
            lambda field: isinstance(field, Text) or cleaned[field.key] not in EMPTY,
        )

    def add_option(self, parser: ArgumentParser, positional: Collection[str] = ()) -> None:
        for field in self.fields:
            field.add_option(parser, positional)

    def from_options(self, options: Mapping[str, Any]) -> Any:
        return self._make(lambda field: field.from_options(options), lambda field: options.get(field.key) is not None)

    def _make(self, value_of: Callable[[ActionField], Any], is_given: Callable[[ActionField], bool]) -> Any:
        fields = [field for field in self.fields if not self.is_partial or is_given(field)]
        return self.make(**{field.name: value_of(field) for field in fields})


@dataclass(frozen=True, kw_only=True)
class Groups(ActionField):
    """A list of objects, each made of several values; only in JSON."""

    group: Group
    count_max: int

    def read_given(self, fields: Fields) -> list[Any]:
        return [self.group.read_object(each) for each in fields.objects(self.name, self.count_max)]

    def serializer(self) -> AnyField:
        return self.group.serializer_class()(many=True, help_text=self.about)


def serializer_of(name: str, fields: Sequence[ActionField], about: str) -> type[serializers.Serializer[Any]]:
    """Return a serializer of these fields for the OpenAPI schema."""
    return type(
        name, (serializers.Serializer,), {field.name: field.serializer() for field in fields} | {"__doc__": about}
    )


def reject_unknown(fields: Fields, known: Sequence[ActionField], others: Sequence[str] = ()) -> None:
    """Reject unknown fields, in groups too: typos must not pass silently."""
    fields.reject_unknown([*(field.name for field in known), *others])
    for field in known:
        inside = fields.optional(field.name) if isinstance(field, Group) else None
        if isinstance(field, Group) and inside is not None:
            reject_unknown(inside, field.fields)


def moment(text: str) -> datetime:
    """Return a date and time of ISO 8601; the default zone is UTC. Raises ValueError."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _moment_or_none(text: str) -> datetime | str:
    return NONE if text == NONE else moment(text)


def _number_or_none(text: str) -> int | str:
    return NONE if text == NONE else int(text)


def _boolean(fields: Fields, name: str) -> bool:
    value = fields.values[name]
    if not isinstance(value, bool):
        raise fields.error(name, "expected true or false")
    return value
