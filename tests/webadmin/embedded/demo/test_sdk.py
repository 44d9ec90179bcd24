"""The program with the SDK: a process of its own that pushes, or a word that there is none; no silent failure."""

from __future__ import annotations

import base64
import random
from pathlib import Path

import pytest

from engine.formats.pprof.pprof import parse_profile
from engine.ingest.model import PushLimits
from engine.ingest.push import decode_push
from tests.webadmin.embedded.demo.listener import Listener
from webadmin.embedded.demo import sdk
from webadmin.embedded.demo.route_planner import SERVICE, City, shortest_route
from webadmin.embedded.demo.sdk import SdkProgramFailed, sdk_program


def replace_sdk(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the program find another module called pyroscope."""
    (folder / "pyroscope.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_when_the_program_has_ended_its_profiles_have_arrived_with_its_credential(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "WORK_SECONDS", 1.5)
    with sdk_program(listener.address, "secret", tmp_path) as has_sdk:
        assert has_sdk
    request = listener.requests[-1]
    assert request.headers["user-agent"].startswith("pyroscope-rs/")
    assert base64.b64decode(request.headers["authorization"].removeprefix("Basic ")) == f"{SERVICE}:secret".encode()
    now_ns = parse_time(request.message)
    profiles = decode_push(request.message, is_json=False, limits=PushLimits(), now_ns=now_ns).profiles
    assert {dict(one.labels)["service_name"] for one in profiles} == {SERVICE}
    assert any(b"shortest_route" in parse_profile(one.pprof).strings for one in profiles)


def parse_time(message: bytes) -> int:
    """Return the time of a push's first profile, which says what now was."""
    from engine.formats.proto import push_pb2

    request = push_pb2.PushRequest.FromString(message)
    return parse_profile(request.series[0].samples[0].raw_profile).time_ns


def test_without_the_sdk_nothing_runs(listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_sdk(tmp_path, "raise ImportError('no native library')", monkeypatch)
    with sdk_program(listener.address, "secret", tmp_path) as has_sdk:
        assert not has_sdk
    assert listener.requests == []


def test_a_program_that_fails_at_once_is_an_error_with_its_words(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_sdk(tmp_path, "def configure(**given): raise RuntimeError('no such option')", monkeypatch)
    with pytest.raises(SdkProgramFailed, match="no such option"), sdk_program(listener.address, "secret", tmp_path):
        pass


def test_a_program_that_fails_at_its_end_is_an_error_with_its_words(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "WORK_SECONDS", 0.0)
    source = "def configure(**given): pass\ndef shutdown(): raise RuntimeError('lost the last profile')"
    replace_sdk(tmp_path, source, monkeypatch)
    with (
        pytest.raises(SdkProgramFailed, match="lost the last profile"),
        sdk_program(listener.address, "secret", tmp_path),
    ):
        pass


def test_a_demonstration_that_fails_meanwhile_leaves_no_program_behind(listener: Listener, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), sdk_program(listener.address, "secret", tmp_path):
        _ = 1 / 0
    assert listener.requests == [], "killed before it could say goodbye"


def test_a_way_through_the_city_is_as_long_in_both_directions_less_its_ends() -> None:
    city = City(random.Random(1))
    there, back = shortest_route(city, (0, 0), (5, 9)), shortest_route(city, (5, 9), (0, 0))
    (first,) = {seconds for place, seconds in city.neighbours((0, 1)) if place == (0, 0)}
    (last,) = {seconds for place, seconds in city.neighbours((5, 8)) if place == (5, 9)}
    assert there - last == back - first > 0
