"""``manage.py simulate``: histories, the line that replays a failure, and sizing."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command


def test_histories_that_hold_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("simulate", "--histories", "3", "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["histories"] == 3
    assert document["events"] > document["runs"] > 0
    assert document["failures"] == []


def test_a_failure_ends_with_1_and_prints_the_line_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command("simulate", "--sabotage", "delay", "--histories", "50")
    assert ended.value.code == 1
    first = capsys.readouterr().err
    line = first.split("replay it with: ")[1].strip()
    with pytest.raises(SystemExit):
        call_command(*shlex.split(line)[1:])
    assert first.splitlines()[0] in capsys.readouterr().err


def test_a_load_is_sized_with_a_table_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "backlog.svg"
    call_command("simulate", "--profile", "sizing", "--rate", "2", "--hours", "0.2", "--plot", str(plot))
    assert "workers needed" in capsys.readouterr().out
    assert plot.read_text().startswith("<svg")


def test_an_unwritable_plot_is_a_command_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--plot"):
        call_command("simulate", "--profile", "sizing", "--hours", "0.05", "--plot", str(tmp_path / "no" / "x.svg"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rate", "-1"], "--rate -1"),
        (["--hours", "0"], "--hours 0"),
        (["--burst", "-5"], "--burst -5"),
        (["--tenants-per-segment", "2"], "cannot hold 2 of 1 tenants"),
        (["--without", "nonsense"], "no fault nonsense; there are bad_result"),
    ],
)
def test_what_cannot_be_simulated_is_refused_in_words(words: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        call_command("simulate", "--profile", "sizing", *words)
