"""Planned pushes become requests that the decoder takes; what is not taken is sent again, or ends the demo."""

from __future__ import annotations

import base64
import time

import pytest

from engine.formats.pprof.pprof import parse_profile
from engine.ingest.model import PushLimits
from engine.ingest.push import decode_push
from tests.webadmin.embedded.demo.listener import Listener
from webadmin.embedded.demo import pushing
from webadmin.embedded.demo.plan import TENANTS, PlannedPush, Recording, plan_round
from webadmin.embedded.demo.pushing import TRIES, Pusher, PushFailed

PASSWORDS = {tenant: f"secret of {tenant}" for tenant in TENANTS}


@pytest.fixture
def pushes(recordings: list[Recording]) -> list[PlannedPush]:
    return plan_round(recordings, 0, time_ms=time.time_ns() // 1_000_000)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "FIRST_PAUSE_SECONDS", 0.0)


def test_every_profile_arrives_with_its_labels_the_present_time_and_its_own_samples(
    listener: Listener, pushes: list[PlannedPush], recordings: list[Recording]
) -> None:
    with Pusher(listener.address, PASSWORDS) as pusher:
        pusher.push(pushes)
    planned = {series.labels: series.window for push in pushes for series in push.series}
    assert len(listener.requests) == len(pushes)
    for request in listener.requests:
        assert request.path == "/push.v1.PusherService/Push"
        assert request.headers["content-type"] == "application/proto"
        decoded = decode_push(request.message, is_json=False, limits=PushLimits(), now_ns=time.time_ns())
        assert not decoded.refused
        for one in decoded.profiles:
            profile, recorded = parse_profile(one.pprof), parse_profile(planned.pop(one.labels).read_bytes())
            assert profile.time_ns == pushes[0].time_ms * 1_000_000
            assert list(profile.samples.values) == list(recorded.samples.values)
    assert not planned


def test_each_tenant_pushes_with_its_own_credential(listener: Listener, pushes: list[PlannedPush]) -> None:
    with Pusher(listener.address, PASSWORDS) as pusher:
        pusher.push(pushes)
    seen = set()
    for request in listener.requests:
        _, _, told = request.headers["authorization"].partition(" ")
        decoded = decode_push(request.message, is_json=False, limits=PushLimits(), now_ns=time.time_ns())
        seen |= {
            (base64.b64decode(told).decode().partition(":")[2], dict(one.labels)["namespace"])
            for one in decoded.profiles
        }
    assert seen == {(password, tenant) for tenant, password in PASSWORDS.items()}


def test_what_was_acknowledged_is_counted(listener: Listener, pushes: list[PlannedPush]) -> None:
    with Pusher(listener.address, PASSWORDS) as pusher:
        pusher.push(pushes)
        pusher.push(pushes)
        done = pusher.pushed
    assert (done.requests, done.profiles) == (2 * len(pushes), 2 * len(pushes))
    assert done.samples == 3 * done.profiles
    # Each tenant starts at another of the windows, which have three functions each.
    assert done.functions == len({name for push in pushes for name in functions(push)})


def functions(push: PlannedPush) -> set[bytes]:
    found = set()
    for series in push.series:
        profile = parse_profile(series.window.read_bytes())
        found |= {profile.strings[name] for name in profile.functions.names}
    return found


@pytest.mark.parametrize("status", [429, 503])
def test_a_push_that_was_not_taken_for_now_is_sent_again_as_it_was(
    listener: Listener, pushes: list[PlannedPush], status: int
) -> None:
    listener.answers = [status, status]
    with Pusher(listener.address, PASSWORDS) as pusher:
        pusher.push(pushes[:1])
        assert pusher.pushed.requests == 1
    assert len(listener.requests) == 3
    assert len({request.message for request in listener.requests}) == 1


def test_a_write_path_that_stays_away_ends_the_demonstration_with_its_words(
    listener: Listener, pushes: list[PlannedPush]
) -> None:
    listener.answers = [503] * TRIES
    with Pusher(listener.address, PASSWORDS) as pusher, pytest.raises(PushFailed, match=r"503 .*as scripted.*tried 6"):
        pusher.push(pushes[:1])
    assert len(listener.requests) == TRIES


def test_a_refused_push_is_not_retried_and_names_service_and_tenant(
    listener: Listener, pushes: list[PlannedPush]
) -> None:
    listener.answers = [401]
    first = pushes[0]
    with (
        Pusher(listener.address, PASSWORDS) as pusher,
        pytest.raises(PushFailed, match=f"{first.service} for tenant {first.tenant} .*401"),
    ):
        pusher.push(pushes[:1])
    assert len(listener.requests) == 1
    assert pusher.pushed.requests == 0


def test_a_refused_connection_is_a_push_error(listener: Listener, pushes: list[PlannedPush]) -> None:
    listener.close()
    with Pusher(listener.address, PASSWORDS) as pusher, pytest.raises(PushFailed, match="ConnectError"):
        pusher.push(pushes[:1])
