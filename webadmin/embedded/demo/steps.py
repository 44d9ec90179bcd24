"""Show the progress of the demonstration: bars on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

PLAIN_LINES = 5  # Per bar, without a terminal.


class Steps:
    """Numbered steps of a known count, each with a bar or a status line below it."""

    def __init__(self, console: Console, count: int) -> None:
        self.console = console
        self._count = count
        self._number = 0

    def begin(self, title: str) -> None:
        """Start the next step."""
        self._number += 1
        self.console.print(f"[bold cyan]\\[{self._number}/{self._count}][/] [bold]{title}[/]", highlight=False)

    def say(self, text: str) -> None:
        """Print a completed result of the step."""
        self.console.print(f"      {text}", highlight=False, markup=False, soft_wrap=True)

    def show(self, thing: RenderableType) -> None:
        """Print a table or panel."""
        self.console.print(thing)

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[Bar]:
        """Show the progress of ``total`` equal units of work."""
        with Bar(self, text, total) as bar:
            yield bar


class Bar:
    """Progress of one task; ``update`` may also change its text."""

    def __init__(self, steps: Steps, text: str, total: int) -> None:
        self._steps = steps
        self._total = max(total, 1)
        self._said = 0
        self._progress = Progress(
            TextColumn("      {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=steps.console,
            transient=True,
            disable=not steps.console.is_terminal,
        )
        self._task: TaskID = self._progress.add_task(text, total=self._total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, done: int, text: str, *, total: int | None = None) -> None:
        """Set the completed units to ``done``; ``total`` corrects their number."""
        self._total = max(total or self._total, 1)
        self._progress.update(self._task, completed=done, total=self._total, description=text)
        part = done * PLAIN_LINES // self._total
        if self._progress.disable and part > self._said:
            self._said = part
            self._steps.say(f"{text} ({done}/{self._total})")
