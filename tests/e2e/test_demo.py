"""The demonstration as a person runs it, only smaller: real recordings, real processes, real Spark, equal answers."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from tests.outside import differences, list_outside
from webadmin.embedded.demo.run import SDK_ROWS, STACK_LOG

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 720
"""Two minutes on an idle machine; more than four were seen on one whose cores eight test runs shared."""
SEGMENTS = 24
NEEDED = ("PATH", "JAVA_HOME", "HOME", "LANG", "SPARK_SUBMIT_OPTS")

pytestmark = [
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.xdist_group("stack"),
    pytest.mark.timeout(DEADLINE_SECONDS + 120),
]


def demo(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the command with a home of its own and everything as short as it goes."""
    own = ["--home", str(home / "demo"), "--recordings", str(home / "recordings"), "--age-seconds", "1"]
    return subprocess.Popen(
        [sys.executable, "manage.py", "demo", *own, *arguments],
        cwd=ROOT,
        env={"LITHIFY_HOME": str(home), **{name: os.environ[name] for name in NEEDED if name in os.environ}},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that starts us in the background has its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def output_of(process: subprocess.Popen[str]) -> str:
    """Wait for the end and return the output; a demonstration that takes too long is stopped with its processes."""
    try:
        return process.communicate(timeout=DEADLINE_SECONDS)[0]
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
        raise AssertionError(f"no end within {DEADLINE_SECONDS} s:\n{output}") from None


def cells(text: str, row: str) -> list[str]:
    """Return what stands in a table's row after its name."""
    line = next(line for line in text.splitlines() if line.strip().startswith(row))
    return re.split(r"\s{2,}", line.strip())[1:]


def numbers(text: str, row: str) -> list[int]:
    """Return the whole numbers of a table's row that stand alone."""
    return [int(cell) for cell in cells(text, row) if cell.isdigit()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, int]:
    """Home, output and exit code of one demonstration with recordings of this machine; nothing else was touched."""
    home = tmp_path_factory.mktemp("home")
    before = list_outside()
    process = demo(home, "--segments", str(SEGMENTS), "--record-seconds", "1")
    output = output_of(process)
    assert differences(before, list_outside()) == []
    return home, output, process.returncode


def test_the_answers_are_equal_and_the_exit_code_is_zero(finished: tuple[Path, str, int]) -> None:
    _, output, code = finished
    assert code == 0, output
    assert "The answers are equal." in output
    assert len(re.findall(r" yes\s*$", output, re.MULTILINE)) == 10 + SDK_ROWS


def test_many_segments_became_a_few_final_objects(finished: tuple[Path, str, int]) -> None:
    _, output, _ = finished
    (segments,) = numbers(output, "level 0 (segments)")
    assert segments >= SEGMENTS
    before, after = numbers(output, "all levels")
    assert before == segments
    assert 2 <= after <= segments // 2  # at least one per tenant
    opened_before, opened_after = numbers(output, "objects a query must open")
    assert opened_after < opened_before <= segments


def test_writers_made_the_segments_of_what_two_tenants_pushed_with_credentials(
    finished: tuple[Path, str, int],
) -> None:
    home, output, _ = finished
    assert f"{numbers(output, 'level 0 (segments)')[0]} segments on " in output
    with sqlite3.connect(f"file:{home}/demo/lithify.sqlite3?mode=ro", uri=True) as database:
        actors = dict(database.execute("SELECT actor, kind FROM schedule_command WHERE kind = 'add_blocks'"))
        pushed = dict(database.execute("SELECT tenant || ' ' || outcome, count FROM ingest_pushcount"))
    database.close()
    # A segment that a busy index did not take in time has its dead letter recovered.
    assert actors.keys() - {"control:dead_letters"} == {"writer:writer-1", "writer:writer-2"}
    assert set(pushed) == {"orchard accepted", "harbour accepted"}
    acknowledged = re.search(r"acknowledged: (\d+) profiles", output)
    assert acknowledged
    assert sum(pushed.values()) > int(acknowledged[1]) > 0, "those of the SDK come on top"


def test_the_program_with_the_unmodified_sdk_is_found_again(finished: tuple[Path, str, int]) -> None:
    _, output, _ = finished
    found = re.search(r"route-planner of tenant orchard, .*: (\d+) profiles of the SDK found, most in (\S+)", output)
    assert found
    assert int(found[1]) >= 1
    assert found[2] in {"shortest_route", "City.neighbours"}
    *_, is_equal = cells(output, "shortest_route")
    assert is_equal == "yes"


def test_the_index_of_the_demonstration_agrees_with_its_table(finished: tuple[Path, str, int]) -> None:
    home, output, _ = finished
    with sqlite3.connect(f"file:{home}/demo/lithify.sqlite3?mode=ro", uri=True) as database:
        states = dict(database.execute("SELECT state || level, count(*) FROM profiles_block GROUP BY 1"))
    database.close()
    assert states["replaced0"] == numbers(output, "level 0 (segments)")[0]
    assert states["final3"] == numbers(output, "level 3 (final)")[0]
    assert not {state for state in states if state.startswith(("queued", "owned", "parked"))}


def test_it_ends_with_a_link_to_the_flame_graph_of_what_was_compacted(finished: tuple[Path, str, int]) -> None:
    home, output, _ = finished
    link = re.search(r"http://127\.0\.0\.1:\d+/admin/flame-graph/\?(\S+)", output)
    assert link
    told = {name: value for name, (value,) in parse_qs(link[1]).items()}
    with sqlite3.connect(f"file:{home}/demo/lithify.sqlite3?mode=ro", uri=True) as database:
        times = database.execute(
            "SELECT min(d.min_time_ms), max(d.max_time_ms) FROM profiles_dataset d "
            "JOIN profiles_block b ON b.id = d.block_id "
            "JOIN access_tenant t ON t.id = d.tenant_id JOIN profiles_datasetname n ON n.id = d.name_id "
            "WHERE b.state = 'final' AND t.name = ? AND n.name = ?",
            (told["tenant"], told["service"]),
        ).fetchone()
    database.close()
    assert (int(told["from"]), int(told["until"])) == times
    assert told["type"].count(":") == 4


def test_the_processes_are_gone_and_none_had_to_be_killed(finished: tuple[Path, str, int]) -> None:
    home, _, _ = finished
    log = (home / "demo" / STACK_LOG).read_text()
    for name in ("compactor", "control", "beat", "web", "writer-1", "writer-2", "redis"):
        assert f"lithify   | {name} stopped" in log
    assert log.index("compactor stopped") < log.index("web stopped")
    assert "killed" not in log
    assert "starting it again" not in log


@pytest.mark.foreign_data
def test_objects_of_another_program_are_compacted_without_touching_their_folder(
    tmp_path: Path, foreign_data: Path
) -> None:
    bucket = foreign_data / "profiles" / "objects"
    before = {path: path.stat().st_mtime_ns for path in bucket.rglob("*")}
    process = demo(tmp_path, "--bucket", str(bucket))
    output = output_of(process)
    assert process.returncode == 0, output
    # Five segments of one tenant and shard become one block; of the three sample blocks one was not final yet.
    assert numbers(output, "all levels") == [8, 4]
    assert {path: path.stat().st_mtime_ns for path in bucket.rglob("*")} == before


def processes_of(home: Path) -> list[str]:
    """Return the command lines of the processes that name this home in them or in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):  # no process, not ours, or gone meanwhile
            command, environment = ((folder / name).read_bytes() for name in ("cmdline", "environ"))
            if str(home).encode() in command + environment:
                found.append(command.replace(b"\0", b" ").decode())
    return found


def test_ctrl_c_stops_every_process(tmp_path: Path) -> None:
    process = demo(tmp_path, "--segments", "2", "--record-seconds", "0.5")
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if "their log:" in line:
            break
    process.send_signal(signal.SIGINT)
    rest = output_of(process)
    assert process.returncode == 130, "".join(said) + rest
    assert processes_of(tmp_path) == []
