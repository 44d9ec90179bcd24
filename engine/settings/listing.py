"""Settings as operators read them: value, source and meaning, without secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlsplit

from engine.settings.base import BadSetting, EnvironmentSettings, is_set
from engine.settings.node import NodeSettings, SourceSettings
from engine.settings.service import MetricsSettings, ServiceSettings

HIDDEN = "(hidden)"
BYTES = {"PiB": 1 << 50, "TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000, "ms": 1}
PROCESSES: Mapping[str, tuple[type[EnvironmentSettings], ...]] = MappingProxyType(
    {
        "Every Django process": (ServiceSettings, MetricsSettings),
        "A compactor node": (NodeSettings,),
        "A Spark program that queries profiles": (SourceSettings,),
    }
)
"""The kinds of processes and what each reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSetting:
    """A setting of a kind of process.

    ``value`` is "" when nothing is set and the process chooses, ``unit`` is that of plain numbers ("" without one), and
    ``source`` is "environment" or "default".
    """

    process: str
    name: str
    value: str
    unit: str
    source: str
    default: str
    meaning: str


def list_settings() -> tuple[list[ListedSetting], list[str]]:
    """Return the settings of every kind of process, as this environment gives them, and the problems in them.

    That a required setting is missing is no problem: this process may be of another kind.
    """
    listed: list[ListedSetting] = []
    problems: list[str] = []
    for process, kinds in PROCESSES.items():
        for kind in kinds:
            missing = [name for name, field in kind.model_fields.items() if field.is_required() and not is_set(name)]
            try:
                found = kind.read(**dict.fromkeys(missing, ""))
            except BadSetting as error:
                problems.append(f"{process}: {error}")
                found = None
            listed.extend(_listed(process, kind, found))
    return listed, problems


def unit_of(name: str) -> str:
    """Return the unit of a setting's plain numbers, which is the end of its name."""
    last = name.rpartition("_")[2]
    return last.lower() if last in {"SECONDS", "BYTES", "DAYS"} and not name.endswith("_PER_SECOND") else ""


def default_of(kind: type[EnvironmentSettings], name: str) -> str:
    """Return a setting's default as documents give it."""
    return kind.marks(name)["default_text"] or value_text(name, kind.model_fields[name].default)


def value_text(name: str, value: object) -> str:
    """Return a value as people read it, exactly: ``32 MiB``, ``15 min``, ``1`` and ``0`` for flags, "" for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, int | float):
        if unit_of(name) == "bytes":
            return _in_largest_unit(int(value), BYTES) if value else "0 B"
        if unit_of(name) == "seconds":
            return _in_largest_unit(round(value * 1000), MILLISECONDS) if value else "0 s"
        if unit_of(name) == "days":
            return f"{value} d"
        return f"{value:g}" if isinstance(value, float) else str(value)
    return str(value)


def _in_largest_unit(count: int, units: Mapping[str, int]) -> str:
    unit, size = next((unit, size) for unit, size in units.items() if count % size == 0)
    return f"{count // size} {unit}"


def url_text(url: str) -> str:
    """Return scheme, host and path of a URL: passwords and tokens are elsewhere. HIDDEN if that is not certain."""
    parts = urlsplit(url)
    path = parts.path.partition(";")[0]
    if not parts.scheme or "@" in parts.path + parts.query + parts.fragment:
        return HIDDEN
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"


def _listed(
    process: str, kind: type[EnvironmentSettings], found: EnvironmentSettings | None
) -> Iterator[ListedSetting]:
    for name, field in kind.model_fields.items():
        text = os.environ.get(name, "") if found is None else value_text(name, getattr(found, name))
        yield ListedSetting(
            process=process,
            name=name,
            value=_without_secrets(text, kind.marks(name)["secret"]),
            unit=unit_of(name),
            source="environment" if is_set(name) else "default",
            default=default_of(kind, name),
            meaning=field.description or "",
        )


def _without_secrets(text: str, secret: str) -> str:
    if not text or not secret:
        return text
    return url_text(text) if secret == "url" else HIDDEN
