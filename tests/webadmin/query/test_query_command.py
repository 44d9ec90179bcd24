"""``manage.py query``: tables and JSON of one answer agree, files can be read back, and refusals say what to do."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from engine.formats.pprof.pprof import parse_profile
from tests.webadmin.query.stored import Stored

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"


class QueryCommand:
    """Runs the command for the stored range."""

    def __init__(self, stored: Stored) -> None:
        self.range = ("--tenant", "quarry", "--from", str(stored.first_ms), "--until", str(stored.last_ms + 1))

    def text(self, form: str, *options: str) -> str:
        out = io.StringIO()
        call_command("query", form, *self.range, *options, stdout=out)
        return out.getvalue()

    def json(self, form: str, *options: str) -> Any:
        return json.loads(self.text(form, *options, "--json"))


@pytest.fixture
def query_command(stored: Stored) -> QueryCommand:
    stored.write(4)
    return QueryCommand(stored)


def test_top_as_table_and_json(query_command: QueryCommand) -> None:
    told = query_command.json("top", "--service", "checkout", "--limit", "3")
    assert told["type"] == CPU
    assert len(told["functions"]) == 3
    own = [each["self"] for each in told["functions"]]
    assert own == sorted(own, reverse=True)
    assert told["total"] >= sum(own) > 0
    assert told["report"]["objects_opened"] == 4
    assert told["report"]["damage"] == []
    assert set(told["report"]["phases_ms"]) == {"index", "open", "series", "rows", "symbols", "merge"}
    shown = query_command.text("top", "--service", "checkout", "--limit", "3")
    assert all(each["function"] in shown for each in told["functions"])
    assert "4 objects" in shown.replace("\N{NO-BREAK SPACE}", " ")


def test_a_flame_graph_as_levels_and_as_a_tree_whose_lines_add_up(query_command: QueryCommand) -> None:
    told = query_command.json("flame")
    assert told["flamebearer"]["names"][0] == "total"
    assert told["flamebearer"]["levels"][0] == [0, told["flamebearer"]["numTicks"], 0, 0]
    assert told["flamebearer"]["numTicks"] == query_command.json("top")["total"]
    few = query_command.json("flame", "--max-nodes", "5")
    assert sum(map(len, few["flamebearer"]["levels"])) < sum(map(len, told["flamebearer"]["levels"]))
    lines = query_command.text("flame", "--cut", "5").splitlines()
    assert lines[0].split()[-1] == "total"
    assert "(smaller)" in "".join(lines)
    depths = [(len(line[23:]) - len(line[23:].lstrip()), float(line.split()[0])) for line in lines[:-1]]
    shares = [share for depth, share in depths if depth == 2]
    assert sum(shares) == pytest.approx(100, abs=0.1 * len(shares))
    assert len(query_command.text("flame", "--cut", "0").splitlines()) > len(lines)


def test_series_with_and_without_points(query_command: QueryCommand) -> None:
    assert query_command.json("series", "--by", "service_name")["series"] == [
        {"service_name": "checkout"},
        {"service_name": "search"},
    ]
    assert 'service_name="search"' in query_command.text("series", "--by", "service_name")
    told = query_command.json("series", "--type", CPU, "--by", "host", "--step", "1")
    assert {each["labels"]["host"] for each in told["series"]} == {"host-0", "host-1", "host-2"}
    with pytest.raises(CommandError, match="100,000 points per series"):
        query_command.json("series", "--type", CPU, "--step", "10", "--from", "0", "--until", "99999999999")
    whole = query_command.json("series", "--type", CPU)
    average = query_command.json("series", "--type", CPU, "--average")
    assert whole["series"][0]["points"][0][1] > average["series"][0]["points"][0][1]
    assert "everything" in query_command.text("series", "--type", CPU)


def test_an_exported_file_has_the_total(query_command: QueryCommand, tmp_path: Path) -> None:
    target = tmp_path / "merged.pb.gz"
    assert "bytes" in query_command.text("export", "--service", "search", "--output", str(target))
    profile = parse_profile(target.read_bytes())
    assert int(profile.samples.values.sum()) == query_command.json("top", "--service", "search")["total"]
    with pytest.raises(CommandError, match="nothing was written"):
        query_command.text("export", "--service", "nobody", "--type", CPU, "--output", str(target))
    with pytest.raises(CommandError, match="No such file"):
        query_command.text("export", "--output", str(tmp_path / "no" / "folder"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--selector", "{a=b}"), "expected a value in quotes at character 3"),
        (("--selector", '{a=~"("}'), "invalid RE2 pattern"),
        (("--type", "cpu"), "got\\(1\\): cpu"),
        (("--service", "nobody"), "look at the tenant, the service and the range"),
        (("--from", "now", "--until", "now-1h"), "start time is after end time"),
    ],
)
def test_an_invalid_query_is_a_command_error_of_one_line(
    query_command: QueryCommand, options: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(CommandError, match=reason):
        query_command.text("top", *options)


def test_a_partial_answer_is_marked_and_exits_with_2(query_command: QueryCommand, stored: Stored) -> None:
    stored.store.put(stored.keys[2], stored.store.get(stored.keys[2])[:1000])
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("query", "top", *query_command.range, stdout=out)
    assert ended.value.code == 2
    assert "PARTIAL: without" in out.getvalue()
    assert stored.keys[2] in out.getvalue()
