"""Labels, descriptions and formatted values of a table's settings."""

from __future__ import annotations

from typing import Any

from webadmin.adminkit import formatting as show
from webadmin.adminkit.setting_words import SettingWords, number_text

NUMBER_WORDS = {
    "granularity": SettingWords(
        label="Granularity", about="Time of a chunk: hour, day, week, month, quarter, year, or like P3D or PT6H."
    ),
    "time_zone": SettingWords(label="Time zone", about="Whose calendar chunks follow, like Europe/Berlin."),
    "origin_ms": SettingWords(
        label="Origin", about="An instant in milliseconds at which a chunk begins; empty: the calendar's.", unit="ms"
    ),
    "segment_bytes_max": SettingWords(label="Segment bytes at most", about="A larger segment is split.", unit="bytes"),
    "segment_rows_max": SettingWords(label="Segment rows at most", about="The same by rows; 0: any number."),
    "small_cost": SettingWords(
        label="Small task", about="Tasks that cost less are joined with those beside them.", unit="bytes"
    ),
    "task_cost_max": SettingWords(
        label="Task cost at most", about="Tasks that cost more are cut; at least twice a small one.", unit="bytes"
    ),
    "open_cost": SettingWords(label="Cost of opening a file", about="Counted as so many bytes.", unit="bytes"),
    "gain_half": SettingWords(label="Half of the gain", about="So many segments saved are half of what can be gained."),
    "weight_fragmentation": SettingWords(label="Weight of fragmentation", about="The four make 100.", unit="%"),
    "weight_oversize": SettingWords(label="Weight of oversize", about="Of segments larger than wanted.", unit="%"),
    "weight_alignment": SettingWords(label="Weight of alignment", about="Of segments across chunks.", unit="%"),
    "weight_recency": SettingWords(label="Weight of recency", about="Of new chunks before old ones.", unit="%"),
    "half_life_seconds": SettingWords(
        label="Half-life of recency", about="After so long age counts half; 0: 30 chunks.", unit="s"
    ),
    "hot_seconds": SettingWords(
        label="Hot window", about="Chunks younger than this are left alone; 0: none is.", unit="s"
    ),
    "running_max": SettingWords(label="Running at most", about="Tasks at once; 0: any number."),
    "running_cost_max": SettingWords(
        label="Running cost at most", about="Of all that run, together; 0: any.", unit="bytes"
    ),
    "waiting_max": SettingWords(label="Waiting at most", about="Tasks beyond are put off: their chunks are deferred."),
    "low_water": SettingWords(label="Low-water mark", about="Deferred chunks come back when no more tasks wait."),
    "patience": SettingWords(label="Patience", about="How often a task may be passed over until it holds its place."),
    "ageing_seconds": SettingWords(
        label="Ageing", about="After waiting so long half of what a priority lacks is made up for; 0: never.", unit="s"
    ),
    "align": SettingWords(label="Align", about="Whether segments across chunks are rewritten for that alone."),
    "sort_columns": SettingWords(label="Sort columns", about="Names with commas; rows of a file are in this order."),
    "roll_up": SettingWords(label="Roll-up", about="Dimensions, metrics and granularity, as JSON; empty: none."),
    "bytes_per_day": SettingWords(label="Bytes a day", about="Most that is rewritten in a day; 0: any.", unit="bytes"),
    "deletion_delay_seconds": SettingWords(
        label="Deletion delay", about="Replaced files stay so long for readers of older manifests.", unit="s"
    ),
}
"""By setting, in display order."""


def setting_text(name: str, value: Any) -> str:
    """Return the value of a setting as text."""
    if value is None or value == "" or value == []:
        return show.NOTHING
    unit = NUMBER_WORDS[name].unit if name in NUMBER_WORDS else ""
    if unit == "ms" and isinstance(value, int):
        return f"{show.moment_text(value)} UTC"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return _roll_up_text(value)
    return number_text(value, unit) if isinstance(value, int) else str(value)


def _roll_up_text(told: dict[str, Any]) -> str:
    metrics = [f"{one.get('function')}({one.get('column') or ''})" for one in told.get("metrics", ())]
    return f"by {', '.join(told.get('dimensions', ())) or 'time'}: {', '.join(metrics)}"
