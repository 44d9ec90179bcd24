"""The recorder: what it sees of a running program, the files it writes, and the programs shipped with it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from engine.formats.pprof import pprof
from engine.formats.pprof.pprof_model import Profile
from engine.ingest.segments.segment import SegmentBuilder
from engine.recording import programs
from engine.recording.__main__ import main
from engine.recording.files import read_recordings, write_recordings
from engine.recording.programs import Program, RecordingFailed, available_programs, record, record_all
from engine.recording.sampler import Sampler, Window, thread_cpu_ns
from engine.recording.stacks import Namer, Place, is_scaffolding, stack_of
from engine.recording.workloads import order_store, source_analysis
from tests.go_pprof import needs_pprof, run_pprof

ROOT = Path(__file__).parents[3]
WAIT_SECONDS_MAX = 60.0

BUSY = """
import threading

kept = []


def burn():
    total = 0
    for number in range(20_000):
        total += number * number
    return total


def keep():
    kept.append(bytearray(10_000))


while True:
    keep()
    burn()
"""

ENDS_EARLY = (
    "import sys, time\n\n\ndef once():\n    end = time.monotonic() + 0.4\n"
    "    while time.monotonic() < end:\n        sum(range(1000))\n\n\nonce()\nsys.exit(0)\n"
)


Found = dict[str, list[Profile]]
"""Recorded profiles by kind."""


def record_until_seen(tmp_path: Path, attempt: Callable[[Path, int], object], seen: Callable[[Found], bool]) -> Found:
    """Record into a new folder, each time twice as long, until what is to be seen was recorded.

    ``attempt`` gets the folder and how many times longer than usual to record: on a busy machine the sampler may have
    no turn in the time that is usually enough.
    """
    for factor in (1, 2, 4, 8, 16):
        out = tmp_path / f"out-{factor}"
        attempt(out, factor)
        if seen(found := profiles_of(out)):
            return found
    raise AssertionError(f"recorded only {[(kind, function_names(profiles)) for kind, profiles in found.items()]}")


def run_recorder(out: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    program = out.parent / "program.py"
    program.write_text(source)
    command = [sys.executable, "-m", "engine.recording", "--out", str(out), "--service", "busy"]
    return subprocess.run(
        [*command, *options, "--", str(program), "--argument"],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def profiles_of(directory: Path) -> Found:
    found: Found = {}
    for recording in read_recordings(directory):
        found.setdefault(recording.profile_name, []).append(pprof.parse_profile(recording.path.read_bytes()))
    return found


def function_names(profiles: list[Profile]) -> set[str]:
    return {profile.strings[name].decode() for profile in profiles for name in profile.functions.names}


@pytest.mark.slow
def test_an_endless_program_is_recorded_in_three_kinds_and_stopped(tmp_path: Path) -> None:
    expected = {"process_cpu": "program.burn", "wall": "program.burn", "memory": "program.keep"}

    def attempt(out: Path, factor: int) -> None:
        ended = run_recorder(out, BUSY, "--seconds", str(2 * factor), "--window-ms", "200")
        assert ended.returncode == 0, ended.stderr

    def seen(found: Found) -> bool:
        return all(function in function_names(found.get(kind, [])) for kind, function in expected.items())

    found = record_until_seen(tmp_path, attempt, seen)
    assert set(found) == set(expected)
    total_wall = sum(int(profile.samples.values.sum()) for profile in found["wall"])
    assert 0 < total_wall < WAIT_SECONDS_MAX * 1e9
    for kind in found.values():
        for profile in kind:
            assert profile.time_ns > 1_700_000_000 * 10**9
            assert not any(b"recording" in string for string in profile.strings)


@pytest.mark.slow
def test_a_program_that_ends_early_is_recorded_until_it_ends_or_again(tmp_path: Path) -> None:
    once = run_recorder(tmp_path / "once", ENDS_EARLY, "--seconds", "30", "--without-memory")
    assert "profiles in" in once.stderr

    def attempt(out: Path, factor: int) -> None:
        again = run_recorder(out, ENDS_EARLY, "--seconds", str(factor), "--repeat", "--without-memory")
        assert again.returncode == 0, again.stderr

    record_until_seen(tmp_path, attempt, lambda found: "program.once" in function_names(found.get("wall", [])))


def test_what_was_recorded_of_a_failing_program_stays(tmp_path: Path) -> None:
    def attempt(out: Path, factor: int) -> None:
        source = (
            f"import time\n\n\ndef wait():\n    time.sleep({0.3 * factor})\n\n\nwait()\nraise RuntimeError('broken')\n"
        )
        ended = run_recorder(out, source, "--seconds", "30", "--without-memory")
        assert ended.returncode == 2
        assert "broken" in ended.stderr

    record_until_seen(tmp_path, attempt, lambda found: "program.wait" in function_names(found.get("wall", [])))


@pytest.mark.parametrize(
    "arguments", [["--service", "x"], ["--out", "x", "--service", "x"], ["--out", "x", "--service", "x", "--", "-m"]]
)
def test_a_command_without_a_program_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "usage" in capsys.readouterr().err


def test_recorded_files_make_a_segment(tmp_path: Path) -> None:
    write_recordings(tmp_path, "shop", [recorded_window()])
    builder = SegmentBuilder(1)
    for recording in read_recordings(tmp_path):
        labels = {"__name__": recording.profile_name, "service_name": recording.service}
        builder.add("demo", labels, pprof.parse_profile(recording.path.read_bytes()))
    assert builder.profile_count == 3
    assert builder.row_count == 5


def recorded_window() -> Window:
    window = Window(time_ns=1_700_000_000_000_000_000, duration_ns=250_000_000)
    stack = stack_of(sys._getframe())
    window.wall[stack] = 250_000_000
    window.cpu[stack], window.looks[stack] = 240_000_000, 50
    window.memory[96, ((__file__, stack[0].line),)] = 3
    return window


@pytest.mark.slow
@needs_pprof
def test_go_reads_what_the_recorder_writes(tmp_path: Path) -> None:
    for recording in write_recordings(tmp_path, "shop", [recorded_window()]):
        assert "recorded_window" in run_pprof(tmp_path, "-top", str(recording.path))


def test_recorded_files_have_the_types_and_values_of_a_window(tmp_path: Path) -> None:
    write_recordings(tmp_path, "shop", [recorded_window()])
    found = {name: profile for name, (profile,) in profiles_of(tmp_path).items()}
    types = {
        name: [(profile.strings[kind], profile.strings[unit]) for kind, unit in profile.sample_types]
        for name, profile in found.items()
    }
    assert types == {
        "process_cpu": [(b"samples", b"count"), (b"cpu", b"nanoseconds")],
        "wall": [(b"wall", b"nanoseconds")],
        "memory": [(b"inuse_objects", b"count"), (b"inuse_space", b"bytes")],
    }
    assert found["process_cpu"].samples.values.tolist() == [50, 240_000_000]
    assert found["memory"].samples.values.tolist() == [3, 288]


def test_recordings_are_listed_by_window_then_service(tmp_path: Path) -> None:
    for service in ("b", "a"):
        write_recordings(tmp_path, service, [recorded_window(), recorded_window()])
    listed = [(one.path.name[-11:-6], one.service, one.profile_name) for one in read_recordings(tmp_path)]
    assert listed == sorted(listed)
    assert len(listed) == 12


def test_a_sampler_sees_other_threads_and_not_itself() -> None:
    over = threading.Event()

    def wait_here() -> None:
        over.wait(WAIT_SECONDS_MAX)

    thread = threading.Thread(target=wait_here)
    thread.start()
    sampler = Sampler(0.05, with_memory=False)
    sampler.start()
    while not any(names_in(window, "wait_here") for window in list(sampler.windows)):
        assert thread.is_alive()
        threading.Event().wait(0.01)
    sampler.stop()
    over.set()
    thread.join()
    assert not any(names_in(window, "_record_window") for window in sampler.windows)


def names_in(window: Window, name: str) -> bool:
    return any(place.code is not None and place.code.co_name == name for stack in window.wall for place in stack)


def test_cpu_time_of_a_thread_grows_while_it_works() -> None:
    native_id = threading.get_native_id()
    before = thread_cpu_ns(native_id)
    np.sort(np.random.default_rng(1).random(400_000))
    assert thread_cpu_ns(native_id) > before


def test_a_thread_that_has_ended_has_no_cpu_time_and_does_no_harm() -> None:
    assert thread_cpu_ns(2**22 - 1) == 0


def test_places_are_named_by_module_function_and_relative_file() -> None:
    namer = Namer()
    code = source_analysis.count_text.__code__
    by_code = namer.frame(Place(code.co_filename, code.co_firstlineno + 4, code))
    by_line = namer.frame(Place(code.co_filename, code.co_firstlineno + 4, None))
    assert by_code == by_line
    assert by_code.function == "engine.recording.workloads.source_analysis.count_text"
    assert by_code.start_line == code.co_firstlineno
    assert not by_code.filename.startswith("/")


def test_places_without_source_still_have_a_name() -> None:
    assert Namer().frame(Place("<frozen importlib._bootstrap>", 7, None)).function == "importlib._bootstrap"
    assert Namer().frame(Place("/nowhere/at/all.py", 7, None)).function


def test_the_recorders_own_frames_are_scaffolding_and_the_workloads_are_not() -> None:
    assert is_scaffolding(programs.__file__)
    assert not is_scaffolding(order_store.__file__)
    assert not is_scaffolding(__file__)


def test_deep_recursion_is_cut_from_the_leaf() -> None:
    def deeper(levels: int) -> int:
        return deeper(levels - 1) if levels else len(stack_of(sys._getframe()))

    assert deeper(300) == 128


def test_at_least_four_shipped_programs_are_available() -> None:
    assert len(available_programs()) >= 4
    assert len({program.service for program in programs.PROGRAMS}) == len(programs.PROGRAMS)


@pytest.mark.slow
def test_two_shipped_programs_give_profiles_of_many_functions(tmp_path: Path) -> None:
    two = available_programs()[:2]

    def seen(found: Found) -> bool:
        kinds = {"process_cpu", "wall", "memory"}
        return set(found) == kinds and len(function_names([one for kind in found.values() for one in kind])) > 30

    def attempt(out: Path, factor: int) -> None:
        recordings = record_all(two, out, seconds=2.5 * factor)
        assert {one.service for one in recordings} == {"code-search", "order-store"}

    record_until_seen(tmp_path, attempt, seen)


@pytest.mark.slow
def test_the_shipped_compiler_writes_into_its_scratch_folder_when_it_comes_to_its_end(tmp_path: Path) -> None:
    (compiler,) = (program for program in programs.PROGRAMS if program.service == "kernel-compiler")
    # Before anything runs: the compiler deletes what its output is to replace.
    assert not any(Path(argument).is_absolute() and Path(argument) != compiler.source for argument in compiler.command)
    subprocess.run([sys.executable, *compiler.command], cwd=tmp_path, check=True, timeout=WAIT_SECONDS_MAX)
    assert [path.name for path in tmp_path.iterdir()] == ["kernel.c"]


def test_programs_run_in_a_scratch_folder_of_the_recordings_that_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "writer.py").write_text("open('written', 'x').close()\nraise OSError(__import__('os').getcwd())\n")
    writer = Program(service="writer", command=(str(tmp_path / "writer.py"),), needs="ast", purpose="")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecordingFailed, match=rf"OSError\('{tmp_path}/out/scratch-\w+/writer'\)"):
        record(writer, Path("out"), seconds=WAIT_SECONDS_MAX)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "writer.py"]
    assert not list((tmp_path / "out").glob("scratch-*"))


def test_a_program_that_cannot_start_is_named(tmp_path: Path) -> None:
    broken = Program(service="broken", command=("-m", "no_such_module_anywhere"), needs="ast", purpose="")
    with pytest.raises(RecordingFailed, match=r"broken.*no_such_module_anywhere"):
        record(broken, tmp_path, seconds=0.05)


def first_steps_of_the_source_analysis() -> object:
    path = source_analysis.sources()[0]
    source = path.read_text(encoding="utf-8")
    assert source_analysis.changed_lines(source, source + "\nx = 1\n") >= 0
    return source_analysis.count_text(source) and source_analysis.instruction_mix(source, str(path))


def first_steps_of_the_order_store() -> object:
    draw = order_store.random.Random(1)
    orders = [order_store.new_order(number, draw) for number in range(1, 4)]
    assert order_store.confirm(orders[0]).startswith("Order 1: thank you")
    assert b"<catalogue>" in order_store.export_catalogue(orders)
    with contextlib.closing(order_store.open_database()) as database:
        order_store.store(database, orders)
        return order_store.report(database)


@pytest.mark.parametrize("steps", [first_steps_of_the_source_analysis, first_steps_of_the_order_store])
def test_workloads_run(steps: Callable[[], object]) -> None:
    assert steps()
    assert list(islice(source_analysis.walk(compile("x = 1", "x", "exec")), 1))
