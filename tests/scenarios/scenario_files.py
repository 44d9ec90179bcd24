"""Text scenarios for deciders: commands in, outcomes beside them.

A file has paragraphs, each with a heading and one command per line::

    # Q2 The block that fills a batch makes it visible.
    push A/1 1 2 3      -> queued 1 2 3
    show                -> A/1 flushed [1 2 3]

The first word of the heading is the row of the reference sheet and the name of the test. ``after Q2`` plays another
paragraph's commands of the same file first. ``pytest --rewrite`` writes what was found in place of what was expected;
the difference is what gets reviewed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ARROW = " -> "
COLUMN = 40


class World(Protocol):
    """What a paragraph is played in: it starts empty and answers each command."""

    def run(self, command: str) -> str:
        """Do what the command says; return the outcome, "" if there is none to show."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One paragraph."""

    row: str
    heading: str
    lines: tuple[tuple[str, str], ...]


def read_scenarios(path: Path) -> list[Scenario]:
    """Return the paragraphs of a file; ValueError if one has no heading or a row occurs twice."""
    scenarios = [_scenario(text, path) for text in path.read_text().split("\n\n") if text.strip()]
    rows = [scenario.row for scenario in scenarios]
    if len(set(rows)) != len(rows):
        raise ValueError(f"{path.name}: a row occurs twice")
    return scenarios


def play(path: Path, row: str, make_world: Callable[[], World], *, is_rewriting: bool) -> None:
    """Play one paragraph and compare its outcomes."""
    scenarios = {scenario.row: scenario for scenario in read_scenarios(path)}
    scenario, world = scenarios[row], make_world()
    found = tuple((command, _run(world, command, scenarios)) for command, _ in scenario.lines)
    if is_rewriting:
        scenarios[row] = Scenario(row, scenario.heading, found)
        path.write_text("\n\n".join(map(_text, scenarios.values())) + "\n")
    else:
        assert _text(Scenario(row, scenario.heading, found)) == _text(scenario), f"{path.name}: {scenario.heading}"


def _run(world: World, command: str, scenarios: dict[str, Scenario]) -> str:
    if command.startswith("after "):
        for earlier, _ in scenarios[command.removeprefix("after ")].lines:
            _run(world, earlier, scenarios)
        return ""
    return world.run(command)


def _scenario(text: str, path: Path) -> Scenario:
    heading, *lines = text.strip().splitlines()
    if not heading.startswith("# "):
        raise ValueError(f"{path.name}: a paragraph starts with {heading!r}, not with a heading")
    pairs = (line.partition(ARROW)[::2] for line in lines)
    return Scenario(
        heading.split()[1], heading, tuple((command.strip(), outcome.strip()) for command, outcome in pairs)
    )


def _text(scenario: Scenario) -> str:
    lines = [f"{command:<{COLUMN}}{ARROW}{outcome}" if outcome else command for command, outcome in scenario.lines]
    return "\n".join([scenario.heading, *lines])
