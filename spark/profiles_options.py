"""The options of ``spark.read.format("lithify.profiles")``, validated before any query.

Defaults come from the environment (``engine.settings.node``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from engine.core.errors import LithifyError
from engine.formats.profile_block.selectors import parse_selector
from engine.query.model import Question
from engine.query.sample_batches import DEFAULT_COLUMNS, SampleColumns
from engine.query.shares import SHARE_BYTES
from engine.settings.node import SourceSettings
from engine.storage import open_store
from spark.errors import BadSourceOption

FORMAT = "lithify.profiles"
OPTIONS = {
    "tenant": "tenant of the profiles (required)",
    "start": "start of the time range, inclusive (required)",
    "end": "end of the time range, exclusive (required)",
    "selector": 'selector of series, such as {service_name="checkout", region=~"eu-.*"}',
    "columns": "names of columns, separated by commas",
    "labels": "label names in the column labels, separated by commas (default: all without __)",
    "on_damage": "fail, or skip damaged datasets",
    "share_bytes": "source bytes per Spark task",
    "url": "URL of the service",
    "credential": "output of create_worker_credential",
    "store": "URL of the object store",
}
SHARE_BYTES_MAX = 1 << 40
_MILLISECONDS = re.compile(r"\d{12,14}")
_FORMS = "such as 2026-11-21, 2026-11-21T08:30:00Z (UTC unless it has an offset) or unix milliseconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Validated options; ``skips_damage`` leaves out damaged datasets. Only the driver uses the credential."""

    tenant: str
    question: Question
    wish: SampleColumns
    skips_damage: bool
    share_bytes: int
    url: str
    store_url: str
    credential: str = field(repr=False)

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SourceOptions:
        """Read options, whose names may be in any case. Raises BadSourceOption."""
        options = {name.lower(): value for name, value in given.items()}
        for name in options:
            if name not in OPTIONS:
                raise BadSourceOption(f"there is no option {name!r}; the options are {', '.join(OPTIONS)}")
        for name in ("tenant", "start", "end"):
            if not options.get(name, "").strip():
                raise BadSourceOption(f"option {name} is missing: {OPTIONS[name]}")
        environment = SourceSettings.read()
        return cls(
            tenant=options["tenant"],
            question=_question(options),
            wish=_wish(options),
            skips_damage=_on_damage(options),
            share_bytes=_share_bytes(options),
            url=_place(options, "url", environment.SERVICE_URL, "SERVICE_URL"),
            store_url=_store_url(options, environment.OBJECT_STORE_URL),
            credential=_place(options, "credential", environment.SERVICE_CREDENTIAL, "SERVICE_CREDENTIAL"),
        )


def parse_moment(text: str, name: str = "start") -> int:
    """Return unix milliseconds. Raises BadSourceOption."""
    text = text.strip()
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadSourceOption(f"option {name}={text!r} is not a time, {_FORMS}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _question(options: Mapping[str, str]) -> Question:
    start_ms, end_ms = (parse_moment(options[name], name) for name in ("start", "end"))
    if start_ms >= end_ms:
        raise BadSourceOption(f"option end={options['end']!r} is not after start={options['start']!r}")
    if end_ms <= 0:
        raise BadSourceOption(f"option end={options['end']!r} is before 1970")
    try:
        matchers = parse_selector(options.get("selector", ""))
    except LithifyError as error:
        raise BadSourceOption(f"option selector={options['selector']!r}: {error}") from error
    return Question(start_ms=start_ms, end_ms=end_ms - 1, matchers=matchers)


def _wish(options: Mapping[str, str]) -> SampleColumns:
    columns = _names(options["columns"]) if "columns" in options else DEFAULT_COLUMNS
    wish = SampleColumns(columns=columns, labels=_names(options["labels"]) if "labels" in options else None)
    try:
        wish.check()
    except LithifyError as error:
        raise BadSourceOption(f"option columns: {error}") from error
    if wish.labels is not None and "labels" not in wish.columns:
        raise BadSourceOption("option labels has no effect: option columns does not include labels")
    return wish


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _on_damage(options: Mapping[str, str]) -> bool:
    wanted = options.get("on_damage", "fail")
    if wanted not in ("fail", "skip"):
        raise BadSourceOption(f"option on_damage={wanted!r} is neither fail nor skip")
    return wanted == "skip"


def _share_bytes(options: Mapping[str, str]) -> int:
    text = options.get("share_bytes", str(SHARE_BYTES))
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= SHARE_BYTES_MAX):
        raise BadSourceOption(f"option share_bytes={text!r} is not a number from 1 to {SHARE_BYTES_MAX}")
    return int(text)


def _place(options: Mapping[str, str], name: str, usual: str, variable: str) -> str:
    found = options.get(name) or usual
    if not found:
        raise BadSourceOption(f"option {name} is missing, and {variable} is not set: {OPTIONS[name]}")
    return found


def _store_url(options: Mapping[str, str], usual: str) -> str:
    url = _place(options, "store", usual, "OBJECT_STORE_URL")
    try:
        open_store(url).close()
    except LithifyError as error:
        raise BadSourceOption(f"option store: {error}") from error
    return url
