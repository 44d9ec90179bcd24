"""The courier and a real Redis: what is sent, and what happens when the broker is away or swallows messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
import redis
from celery import Celery

from tasks.app import configure
from tasks.courier import ECHO_SECONDS, CeleryCourier
from tests.processes import Process, Processes, free_port

A, B = ("job-a", "token-1"), ("job-b", "token-2")


class Broker:
    """A real Redis that can go away and come back at the same port."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._port = free_port()
        self._redis: Process | None = None
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        self._redis, _ = self._processes.start_redis(self._port)

    def stop(self) -> None:
        assert self._redis is not None
        self._redis.kill()

    def messages(self, queue: str) -> list[tuple[str, list[object]]]:
        """Task names and arguments of the messages in a queue."""
        with redis.Redis.from_url(self.url) as connection:
            raw = [json.loads(text) for text in connection.lrange(queue, 0, -1)]
        return [(one["headers"]["task"], json.loads(base64.b64decode(one["body"]))[0]) for one in raw]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Processes() as processes:
        broker = Broker(processes)
        broker.start()
        yield broker


@pytest.fixture
def app(broker: Broker) -> Iterator[Celery]:
    app = Celery("test", fixups=(), set_as_current=False)
    configure(app, broker.url)
    yield app
    app.pool.force_close_all()
    app.close()


@pytest.mark.stack
def test_pairs_travel_as_one_message_to_the_own_queue(broker: Broker, app: Celery) -> None:
    courier = CeleryCourier(app, "compactor.sand")
    assert courier.send([A, B])
    assert broker.messages("compactor.sand") == [("compactor.merge", [[["job-a", "token-1"], ["job-b", "token-2"]]])]


@pytest.mark.stack
def test_an_unreachable_broker_marks_the_courier_disconnected_until_an_echo(broker: Broker, app: Celery) -> None:
    now = 100.0
    reconnected: list[bool] = []
    courier = CeleryCourier(app, "compactor.sand", clock=lambda: now)
    courier.on_reconnected = lambda: reconnected.append(True)
    broker.stop()
    assert not courier.send([A])
    assert not courier.is_connected
    courier.probe_broker()
    broker.start()
    courier.probe_broker()
    assert broker.messages("compactor.sand") == [], "echoes keep their pause"
    now += ECHO_SECONDS
    courier.probe_broker()
    assert broker.messages("compactor.sand") == [("compactor.echo", [])]
    assert not courier.is_connected, "sending an echo does not count as its arrival"
    courier.note_echo()
    assert courier.is_connected
    assert reconnected == [True]


def test_a_lost_message_marks_the_courier_disconnected_and_its_return_is_reported_once() -> None:
    courier = CeleryCourier(Celery("test", fixups=(), set_as_current=False, broker="memory://"), "compactor.sand")
    reconnected: list[bool] = []
    courier.on_reconnected = lambda: reconnected.append(True)
    courier.note_echo()
    courier.note_undelivered()
    assert not courier.is_connected
    courier.note_echo()
    courier.note_echo()
    assert reconnected == [True]
