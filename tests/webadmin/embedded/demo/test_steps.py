"""Progress is drawn on a terminal and written in few plain lines elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from webadmin.embedded.demo.steps import PLAIN_LINES, Steps


def shown(*, on_terminal: bool) -> str:
    output = io.StringIO()
    steps = Steps(Console(file=output, force_terminal=on_terminal, width=100), 3)
    steps.begin("Build")
    with steps.bar("building", 1000) as bar:
        for done in range(1, 1001):
            bar.update(done, "building")
    steps.say("built 1000 [of] them")
    return output.getvalue()


def test_without_a_terminal_there_are_few_plain_lines_and_no_control_characters() -> None:
    lines = shown(on_terminal=False).splitlines()
    assert lines[0] == "[1/3] Build"
    assert lines[-1] == "      built 1000 [of] them"
    assert lines[-2] == "      building (1000/1000)"
    assert len(lines) == 2 + PLAIN_LINES
    assert "\x1b" not in "".join(lines)


def test_a_terminal_gets_a_bar() -> None:
    text = shown(on_terminal=True)
    assert "━" in text
    assert "1000/1000" in text
