"""Merged log of several processes: every line has the name of its program as prefix."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TextIO

# ANSI foreground colours that are readable on light and dark backgrounds; red is for errors of the supervisor.
COLOURS = (36, 32, 33, 35, 34, 96, 92, 95)
SUPERVISOR = "lithify"


def wants_colour(stream: TextIO) -> bool:
    """Return whether to use colour: on a terminal, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


class ProcessLog:
    """Write whole lines, one at a time, from any thread; the prefix is padded to the longest program name."""

    def __init__(self, stream: TextIO, names: Sequence[str], *, coloured: bool | None = None) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._coloured = wants_colour(stream) if coloured is None else coloured
        self._width = max(map(len, [SUPERVISOR, *names]))
        self._colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}

    def write(self, name: str, line: str) -> None:
        """Write one output line of the program ``name``."""
        with self._lock:
            self._stream.write(f"{self._prefix(name)} {line}\n")
            self._stream.flush()

    def say(self, line: str) -> None:
        """Write one line of the supervisor."""
        self.write(SUPERVISOR, line)

    def _prefix(self, name: str) -> str:
        text = f"{name:<{self._width}} |"
        return f"\x1b[{self._colours.get(name, 1)}m{text}\x1b[0m" if self._coloured else text
