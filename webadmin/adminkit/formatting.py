"""Format values of tables for operators: sizes, times, badges, links, JSON.

Values returned as SafeString were escaped here; no other module of the admin marks text as safe.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from engine.core.formatting import format_size

NOTHING = "\N{EN DASH}"
GAP = "\N{NO-BREAK SPACE}"
"""Between a number and its unit, which must not be separated by a line break."""
TIME_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
WALL_TIME, COMMAND_TIME = "UTC", "command time"
STRING_SHOWN_MAX = 160
"""Longer strings in JSON (mostly encoded metadata) are truncated to keep the rest of the page readable."""
LIST_SHOWN_MAX = 200
JSON_SHOWN_MAX = 100_000

_MOMENT_MS_MAX = 253_402_300_799_000  # the last second of datetime
_KEY = re.compile(r"^( *)(&quot;.*?&quot;):", re.MULTILINE)


def size_text(size: int | None) -> str:
    """Return bytes with three significant digits: ``34.1 KiB``."""
    return NOTHING if size is None else format_size(size).replace(" ", GAP)


def count_text(count: int) -> str:
    """Return a count with a thousands separator: ``1 204 000``."""
    return f"{count:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return ``1 job``, ``2 jobs``, ``no jobs``."""
    several = plural or f"{noun}s"
    if count == 1:
        return f"1{GAP}{noun}"
    return f"{count_text(count)}{GAP}{several}" if count else f"no{GAP}{several}"


def place_text(shard: int, level: int) -> str:
    """Return a shard and level on one line."""
    return GAP.join(("shard", str(shard), "·", "level", str(level)))


def duration_text(ms: int | None) -> str:
    """Return a duration in its two largest units: ``2 h 5 min``; below a second ``0 s``."""
    if ms is None:
        return NOTHING
    rest, parts = abs(ms), []
    for unit_ms, name in TIME_UNITS:
        number, rest = divmod(rest, unit_ms)
        if number:
            parts.append(f"{number}{GAP}{name}")
        elif parts:
            break
    return ("-" if ms < 0 and parts else "") + (GAP.join(parts[:2]) or f"0{GAP}s")


def moment_text(ms: int | None) -> str:
    """Return unix milliseconds as UTC: ``2026-11-21 08:11:45``; a number outside of the range of dates unchanged."""
    if ms is None:
        return NOTHING
    if not 0 <= ms <= _MOMENT_MS_MAX:
        return f"{ms} ms"
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def age(ms: int | None, now_ms: int, *, clock: str = WALL_TIME) -> SafeString | str:
    """Return how long ago this was, with the moment on hover; ``clock`` names the time scale of both."""
    if ms is None:
        return NOTHING
    return hint(f"{duration_text(max(now_ms - ms, 0))} ago", f"{moment_text(ms)} {clock}")


def waited(ms: int | None, now_ms: int, *, clock: str = WALL_TIME) -> SafeString | str:
    """Return the age alone, for columns whose header names the event."""
    return NOTHING if ms is None else hint(duration_text(max(now_ms - ms, 0)), f"{moment_text(ms)} {clock}")


def moment_age(at: datetime | None, now: datetime) -> SafeString | str:
    """Return how long ago a moment of wall time was."""
    return NOTHING if at is None else age(epoch_ms(at), epoch_ms(now))


def epoch_ms(at: datetime) -> int:
    """Return unix milliseconds of an aware moment."""
    return int(at.timestamp() * 1000)


def time_range(min_ms: int, max_ms: int) -> SafeString:
    """Return a closed range of data times, with its length."""
    start, end = moment_text(min_ms), moment_text(max_ms)
    shown_end = end[11:] if start[:10] == end[:10] and len(end) == 19 else end
    return hint(f"{start} … {shown_end}", f"{duration_text(max_ms - min_ms)}, UTC")


def time_range_cell(min_ms: int, max_ms: int) -> SafeString:
    """Return a closed range of data times in two short lines, for lists."""
    start, end = moment_text(min_ms), moment_text(max_ms)
    if start[:10] != end[:10]:
        return note(hint(f"{start} …", duration_text(max_ms - min_ms)), end)
    return note(hint(f"{start[11:]} … {end[11:]}", f"{start} UTC"), f"{start[:10]}, {duration_text(max_ms - min_ms)}")


def hint(text: str, more: str) -> SafeString:
    """Return text with more text on hover."""
    return format_html('<span class="lt-hint" title="{}">{}</span>', more, text)


def badge(text: str, tone: str, more: str = "") -> SafeString:
    """Return a small coloured label; tones: quiet, busy, good, warn, bad."""
    return format_html('<span class="lt-badge lt-{}" title="{}">{}</span>', tone, more, text)


def code(text: object) -> SafeString:
    """Return a name, key or checksum in monospaced type."""
    return format_html('<span class="lt-code">{}</span>', text)


def short_code(text: str) -> SafeString:
    """Return a long name truncated to the width of a column, in full on hover."""
    return format_html('<span class="lt-code lt-short" title="{}">{}</span>', text, text)


def name(text: object) -> SafeString:
    """Return a name on one line, truncated to the width of a column, in full on hover."""
    return format_html('<span class="lt-name" title="{}">{}</span>', text, text)


def note(main: str, more: str) -> SafeString:
    """Return text with a second line in a secondary colour."""
    return format_html('<span class="lt-two">{}<span class="lt-more">{}</span></span>', main, more)


def progress_bar(done: int, total: int, phase: str = "") -> SafeString:
    """Return a progress bar with its percentage; a total of 0 is not started."""
    share = min(max(done * 100 // total, 0), 100) if total > 0 else 0
    bar = '<span class="lt-progress" title="{}"><span style="width:{}%"></span></span> {}{}%'
    return format_html(bar, phase, share, share, GAP)


def page_address(row: Model) -> str:
    """Return the address of a row's page in the admin."""
    return list_address(type(row), "change", row.pk)


def list_address(model: type[Model], page: str = "changelist", *arguments: object, **filters: object) -> str:
    """Return the address of a table's list, optionally filtered: ``list_address(Job, state="parked")``."""
    query = {name: str(value) for name, value in filters.items()}
    meta = model._meta
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_{page}", args=arguments, query=query or None)


def link(address: str, text: object) -> SafeString:
    """Return a link."""
    return format_html('<a class="lt-link" href="{}">{}</a>', address, text)


def row_link(row: Model | None, text: object = "") -> SafeString | str:
    """Return a link to a row's page, or a dash where there is none."""
    return NOTHING if row is None else link(page_address(row), text or row)


def side_by_side(*parts: SafeString) -> SafeString:
    """Return several links or badges in one cell."""
    return format_html_join(" · ", "{}", ((part,) for part in parts))


def command_link(index: int) -> SafeString:
    """Return a link to an entry of the command log by its index; old entries may have been dropped from the log."""
    return link(reverse("admin:schedule_command_change", args=[index]), f"#{index}")


def json_text(data: Any) -> SafeString:
    """Return JSON for display: indented, keys highlighted, long strings and lists truncated with a note of what is
    missing.
    """
    text = json.dumps(_shortened(data), indent=2, ensure_ascii=False)
    if len(text) > JSON_SHOWN_MAX:
        text = f"{text[:JSON_SHOWN_MAX]}\n… {len(text) - JSON_SHOWN_MAX} more characters"
    escaped = str(format_html("{}", text))
    return mark_safe(_KEY.sub(r'\1<span class="lt-key">\2</span>:', escaped))  # noqa: S308  (escaped above)


def _shortened(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _shortened(value) for name, value in data.items()}
    if isinstance(data, list):
        missing = len(data) - LIST_SHOWN_MAX
        return [_shortened(value) for value in data[:LIST_SHOWN_MAX]] + ([f"… {missing} more"] if missing > 0 else [])
    if isinstance(data, str) and len(data) > STRING_SHOWN_MAX:
        return f"{data[: STRING_SHOWN_MAX // 4]}… ({len(data)} characters)"
    return data
