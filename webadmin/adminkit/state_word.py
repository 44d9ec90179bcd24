"""A state in a word: decided once, shown alike by pages, commands and the front page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateWord:
    """A state in a word, the tone it is shown in, and why, "" where the word says it."""

    word: str
    tone: str
    why: str = ""
