"""Recordings are made once, kept whole, and made again when what they depend on has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.recording.files import Recording as RecordedFile
from engine.recording.files import read_recordings
from webadmin.embedded.demo import recordings
from webadmin.embedded.demo.recordings import ensure_recordings, group_recordings


class Recorder:
    """Stands in for the real recorder, which takes seconds; the demonstration's own test runs the real one."""

    def __init__(self) -> None:
        self.recorded: list[str] = []
        self.fail_at = ""

    def __call__(self, programs, directory: Path, *, seconds: float, parallel: int) -> list[RecordedFile]:
        for program in programs:
            if program.service == self.fail_at:
                raise InterruptedError
            self.recorded.append(program.service)
            for window in range(3):
                path = directory / program.service / f"wall-{window:05d}.pb.gz"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"")
        return read_recordings(directory)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(recordings, "record_all", recorder)
    return recorder


def test_every_program_is_recorded_once_and_then_read_from_the_folder(tmp_path: Path, recorder: Recorder) -> None:
    steps: list[tuple[int, int]] = []
    first = ensure_recordings(tmp_path, 1.0, lambda done, count: steps.append((done, count)))
    assert len(recorder.recorded) == len(first) >= 4
    assert steps[-1] == (len(first), len(first))
    again = ensure_recordings(tmp_path, 1.0, lambda done, count: steps.append((done, count)))
    assert again == first
    assert len(recorder.recorded) == len(first)


def test_another_length_is_another_recording(tmp_path: Path, recorder: Recorder) -> None:
    ensure_recordings(tmp_path, 1.0, lambda done, count: None)
    before = len(recorder.recorded)
    ensure_recordings(tmp_path, 2.0, lambda done, count: None)
    assert len(recorder.recorded) == 2 * before


def test_an_interrupted_recording_is_begun_again(tmp_path: Path, recorder: Recorder) -> None:
    recorder.fail_at = "sales-report"
    with pytest.raises(InterruptedError):
        ensure_recordings(tmp_path, 1.0, lambda done, count: None)
    recorder.fail_at, recorder.recorded = "", []
    made = ensure_recordings(tmp_path, 1.0, lambda done, count: None)
    assert len(recorder.recorded) == len(made)


def test_windows_are_gathered_by_program_and_profile_type_in_their_order() -> None:
    files = [
        RecordedFile(service=service, profile_name=name, path=Path(f"{service}-{name}-{number}"))
        for number in range(2)
        for service in ("store", "parser")
        for name in ("wall", "memory")
    ]
    made = group_recordings(files)
    assert [(one.service, one.name) for one in made] == [
        ("parser", "memory"),
        ("parser", "wall"),
        ("store", "memory"),
        ("store", "wall"),
    ]
    assert [path.name for path in made[0].windows] == ["parser-memory-0", "parser-memory-1"]
