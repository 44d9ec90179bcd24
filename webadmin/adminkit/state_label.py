"""A state as a label, determined once and shown alike by pages, commands and the front page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateLabel:
    """The label of a state, its tone, and the reason, "" where the label suffices."""

    word: str
    tone: str
    why: str = ""
