"""Deliver every Celery message twice: watch the pushes to the broker's queues and repeat them."""

from __future__ import annotations

import ast
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from redis.exceptions import ConnectionError as BrokerGone

_WORD = re.compile(rb'"(?:[^"\\]|\\.)*"')
WATCHED = (b"compactor.", b"control")
READY_SECONDS = 30.0


class Repeater:
    """Repeats messages until ``close``. ``repeated`` counts them by queue."""

    def __init__(self, broker_url: str) -> None:
        self.repeated: Counter[str] = Counter()
        self._client = redis.Redis.from_url(broker_url)
        self._watching = self._client.connection_pool.get_connection()
        self._own: Counter[tuple[bytes, bytes]] = Counter()

    def run(self) -> None:
        """Watch in the calling thread."""
        self._watching.send_command("MONITOR")
        try:
            while True:
                self._see(self._watching.read_response(disable_decoding=True))
        except (BrokerGone, OSError, ValueError):
            return  # Closed, or the broker has stopped.

    def close(self) -> None:
        """End ``run``."""
        self._watching.disconnect()
        self._client.close()

    def _see(self, line: bytes) -> None:
        words = [ast.literal_eval("b" + word.decode("ascii")) for word in _WORD.findall(line)]
        if len(words) != 3 or words[0].upper() != b"LPUSH" or not words[1].startswith(WATCHED):
            return
        message = (words[1], words[2])
        if self._own[message]:
            self._own[message] -= 1
            return
        self._own[message] += 1
        self._client.lpush(*message)
        self.repeated[words[1].decode()] += 1


@contextmanager
def repeating(broker_url: str) -> Iterator[Repeater]:
    """Repeat every message within a ``with``."""
    repeater = Repeater(broker_url)
    thread = threading.Thread(target=repeater.run, daemon=True)
    thread.start()
    try:
        yield repeater
    finally:
        repeater.close()
        thread.join(READY_SECONDS)
