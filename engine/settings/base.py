"""Types of settings, how they are read from the environment, and the one error for all that are wrong."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, ValidationError
from pydantic.config import JsonDict
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from engine.core.errors import LithifyError
from engine.storage import resolve_links

SECONDS_PER_UNIT = {"ms": 0.001, "s": 1, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LONG_UNITS = {
    **dict.fromkeys(("sec", "second", "seconds"), "s"),
    **dict.fromkeys(("minute", "minutes"), "min"),
    **dict.fromkeys(("hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("week", "weeks"), "w"),
}
_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_SIZE_EXPECTED = "expected a size such as 33554432, 32 MiB or 1.5 GiB"


class BadSetting(LithifyError):
    """Settings are missing or invalid; the message names each variable, what was expected and what was found."""

    code = "bad_setting"


def parse_duration(value: object, default_unit: str = "s") -> float:
    """Return a duration such as ``900``, ``"15 min"`` or ``"7 days"`` in ``default_unit``, which plain numbers have.

    Raises ValueError.
    """
    found = _DURATION.fullmatch(str(value))
    unit = found[2].lower() if found else ""
    unit_seconds = SECONDS_PER_UNIT.get(_LONG_UNITS.get(unit, unit or default_unit))
    if found is None or unit_seconds is None:
        plain = {"s": "900 (seconds), 15 min", "d": "90 (days), 12 weeks"}[default_unit]
        raise ValueError(f"expected a duration such as {plain} or 7 days")
    number = float(found[1]) if not unit else float(found[1]) * unit_seconds / SECONDS_PER_UNIT[default_unit]
    if not math.isfinite(number):
        raise ValueError("expected a finite duration")
    return number


def _whole(value: float) -> int:
    if value != round(value):
        raise ValueError("expected a whole number")
    return round(value)


def _names(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _level(value: str) -> str:
    if value.upper() not in logging.getLevelNamesMapping():
        raise ValueError("expected DEBUG, INFO, WARNING, ERROR or CRITICAL")
    return value.upper()


def _resolved(url: str) -> str:
    try:
        return resolve_links(url)
    except LithifyError as error:
        raise ValueError(str(error)) from error


Seconds = Annotated[float, BeforeValidator(parse_duration)]
WholeSeconds = Annotated[int, BeforeValidator(lambda value: _whole(parse_duration(value)))]
Days = Annotated[int, BeforeValidator(lambda value: _whole(parse_duration(value, "d")))]
Size = Annotated[ByteSize, AfterValidator(int)]
Names = Annotated[list[str], BeforeValidator(_names)]
"""Comma separated."""
LogLevel = Annotated[str, AfterValidator(_level)]
Folder = Annotated[Path, AfterValidator(Path.resolve)]
StoreUrl = Annotated[str, AfterValidator(_resolved)]
"""``file://…`` or ``s3://…``; links in a folder's path are resolved."""
StoreUrls = Annotated[list[StoreUrl], BeforeValidator(_names)]


def setting(meaning: str, default: Any = ..., *, default_text: str = "", secret: str = "", **field: Any) -> Any:
    """Declare a setting; without a default it is required.

    ``default_text`` describes a default that depends on the machine. ``secret`` is "value" if no part of the value may
    be shown, "url" if it is a URL that may hold credentials. ``field`` goes to pydantic, such as bounds.
    """
    marks: JsonDict = {"default_text": default_text, "secret": secret}
    if "default_factory" not in field:
        field["default"] = default
    return Field(description=meaning, json_schema_extra=marks, repr=not secret, **field)


class EnvironmentSettings(BaseSettings):
    """Settings of a kind of process. A field has the name of its variable; an empty variable counts as not set."""

    model_config = SettingsConfigDict(
        case_sensitive=True,
        env_ignore_empty=True,
        enable_decoding=False,
        validate_default=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing but the environment."""
        return init_settings, env_settings

    @classmethod
    def read(cls, **values: Any) -> Self:
        """Return the environment's settings; ``values`` take precedence. Raises BadSetting with all that is wrong."""
        try:
            return cls(**values)
        except ValidationError as error:
            # The cause holds the values, of secrets too.
            own = [found for found in error.errors() if found["type"] != "default_factory_not_called"]
            raise BadSetting("; ".join(map(cls._problem, own))) from None

    @classmethod
    def marks(cls, name: str) -> Mapping[str, str]:
        """Return ``default_text`` and ``secret`` of a setting, "" where it has none."""
        return cast(Mapping[str, str], cls.model_fields[name].json_schema_extra)

    @classmethod
    def _problem(cls, found: ErrorDetails) -> str:
        name = str(found["loc"][0])
        if found["type"] == "missing":
            return f"{name} is not set: expected {cls.model_fields[name].description}"
        value = "not valid" if cls.marks(name)["secret"] else repr(found["input"])
        expected = _SIZE_EXPECTED if found["type"].startswith("byte_size") else found["msg"]
        expected = expected.removeprefix("Value error, ").replace("Input should be", "expected")
        return f"{name} is {value}: {expected}"


def is_set(name: str) -> bool:
    """Whether the environment sets a variable; an empty one counts as not set."""
    return bool(os.environ.get(name))
