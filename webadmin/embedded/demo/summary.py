"""Tables at the end of the demonstration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from rich import box
from rich.table import Table
from rich.text import Text

from webadmin.embedded.demo.figures import (
    LevelTotal,
    LiveBlock,
    name_text,
    seconds_text,
    size_text,
    total,
    totals_by_level,
    value_text,
)
from webadmin.embedded.demo.outcome import Comparison, OriginalResult
from webadmin.embedded.demo.question import TOP_COUNT, Answer

LEVEL_NAMES = {0: "level 0 (segments)", 3: "level 3 (final)"}
NOTHING = "-"


def level_table(before: Sequence[LiveBlock], after: Sequence[LiveBlock]) -> Table:
    """Return a table of the objects and bytes that queries read, by level, before and after."""
    was, now = totals_by_level(before), totals_by_level(after)
    table = _table("Live objects", "", "objects before", "bytes before", "objects after", "bytes after")
    for level in sorted(was.keys() | now.keys()):
        table.add_row(LEVEL_NAMES.get(level, f"level {level}"), *_cells(was.get(level)), *_cells(now.get(level)))
    table.add_section()
    table.add_row("all levels", *_cells(total(was)), *_cells(total(now)), style="bold")
    return table


def query_table(before: Answer, after: Answer) -> Table:
    """Return a table of the cost of the query before and after."""
    table = _table("One question", "", "before", "after")
    table.add_row("objects a query must open", str(before.objects_opened), str(after.objects_opened), style="bold")
    table.add_row("requests to the store", str(before.requests), str(after.requests))
    table.add_row("bytes read", size_text(before.bytes_read), size_text(after.bytes_read))
    table.add_row("time to the answer", seconds_text(before.seconds), seconds_text(after.seconds))
    return table


def sdk_text(sdk: OriginalResult) -> str:
    """Return the result for the SDK's program as text."""
    top = sdk.answer.functions[0]
    spent = value_text(top.self_value, sdk.question.unit)
    return f"{sdk.question.text}: {sdk.answer.profiles} profiles of the SDK found, most in {top.function} ({spent})"


def answer_table(compared: Comparison, rows: int = TOP_COUNT) -> Table:
    """Return a table of the largest functions before and after; differences are always included."""
    question, wrong = compared.question, compared.wrong
    title = f"Where does it go? {question.text}"
    table = _table(title, "function", "self before", "self after", "total before", "total after", "equal")
    for position, (was, now) in enumerate(zip_longest(compared.before.functions, compared.after.functions)):
        if position >= rows and position not in wrong:
            continue
        table.add_row(
            Text(name_text((was or now).function), overflow="ellipsis", no_wrap=True),
            *(value_text(row.self_value, question.unit) if row else NOTHING for row in (was, now)),
            *(value_text(row.total_value, question.unit) if row else NOTHING for row in (was, now)),
            Text("NO", style="bold red") if position in wrong else Text("yes", style="green"),
        )
    return table


def duration_table(seconds: Mapping[str, float]) -> Table:
    """Return a table of the duration of each step."""
    table = _table("Duration", "", "seconds")
    for name, duration in seconds.items():
        table.add_row(name, f"{duration:.1f}")
    table.add_section()
    table.add_row("together", f"{sum(seconds.values()):.1f}", style="bold")
    return table


def _table(title: str, first: str, *numbers: str) -> Table:
    head = Text(title)
    table = Table(
        first, title=head, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, min_width=head.cell_len
    )
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cells(one: LevelTotal | None) -> tuple[str, str]:
    return (str(one.objects), size_text(one.bytes)) if one else (NOTHING, NOTHING)
