"""Plays the text scenarios of this folder, each row under its own name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.queue_world import QueueWorld
from tests.scenarios.scenario_files import World, play, read_scenarios
from tests.scenarios.schedule_world import ScheduleWorld
from tests.scenarios.timeline_world import TimelineWorld

HERE = Path(__file__).parent
WORLDS: dict[str, type[World]] = {
    "queue": QueueWorld,
    "planning": QueueWorld,
    "scheduling": ScheduleWorld,
    "timeline": TimelineWorld,
}
FILES = sorted(path for folder in WORLDS for path in (HERE / folder).glob("*.txt"))
ROWS = [(path, scenario.row) for path in FILES for scenario in read_scenarios(path)]


@pytest.mark.parametrize(("path", "row"), ROWS, ids=[f"{path.parent.name}-{path.stem}-{row}" for path, row in ROWS])
def test_scenario(path: Path, row: str, request: pytest.FixtureRequest) -> None:
    play(path, row, WORLDS[path.parent.name], is_rewriting=request.config.getoption("--rewrite"))


def test_every_folder_has_scenarios() -> None:
    assert {path.parent.name for path in FILES} == set(WORLDS)


class _Echo:
    def run(self, command: str) -> str:
        return command.upper()


def test_a_wrong_outcome_fails_and_rewriting_puts_the_right_one(tmp_path: Path) -> None:
    path = tmp_path / "echo.txt"
    path.write_text("# E1 First.\nsay a -> wrong\n\n# E2 Second.\nafter E1\nsay b -> SAY B\n")
    play(path, "E2", _Echo, is_rewriting=False)
    with pytest.raises(AssertionError, match="First"):
        play(path, "E1", _Echo, is_rewriting=False)
    play(path, "E1", _Echo, is_rewriting=True)
    play(path, "E1", _Echo, is_rewriting=False)
    assert [scenario.row for scenario in read_scenarios(path)] == ["E1", "E2"]


@pytest.mark.parametrize("text", ["say a\n", "# E1 One.\nsay a\n\n# E1 Again.\nsay b\n"])
def test_a_file_without_headings_or_with_a_row_twice_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"bad\.txt"):
        read_scenarios(path)
