"""Segment writers as real processes, senders that load them, and counts of the stored profiles.

The senders are simplified distributors: they place profiles by the published ring, try one instance after another, and
retry a profile unchanged until it is acknowledged. Every profile has one sample in a function of its own.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import httpx
import psycopg
from django.conf import settings

from engine.formats.profile_block.container.metadata import decode_metadata
from engine.placement.delivery import Answer, CircuitBreaker, deliver
from engine.placement.model import LoadBalancing, PlacementRules, TenantLimits
from engine.placement.placer import Decision, Placer
from engine.placement.publication import load_ring
from engine.placement.ring import EMPTY_RING, Ring
from engine.query.top_functions import top_functions
from engine.storage import ObjectStore, open_store
from tests.faults.preloaded import Disk, WallClock, environments
from tests.faults.stack import FRONT_PAGE
from tests.processes import Process, Processes, wait_until
from tests.signed_documents import signed
from tests.warm_python import WarmPython
from tests.webadmin.ingest.writer.pushes import PROFILE_TYPE, SAMPLE_VALUE, SERVICE, TENANT, push_bytes, pushed_profile
from webadmin.ingest.writer.credential import authorization_header
from webadmin.ingest.writer.http import PUSH_PATH

ATTEMPTS = 6
ATTEMPT_SECONDS = 4.0
REFRESH_SECONDS = 0.5
EVERYTHING = 1_000_000
_loads = itertools.count(1)
SPREAD = PlacementRules(
    default_limits=TenantLimits(default_dataset_shards=24, load_balancing=LoadBalancing.FINGERPRINT)
)
RECOVER = """
import django
django.setup()
from django.conf import settings
from engine.storage import open_store
from webadmin.lanes.profiles.services.recover_letters import recover_letters
outcome = recover_letters(store=open_store(settings.OBJECT_STORE_URL))
assert not outcome.kept, outcome.kept
print(outcome.recovered)
"""

METRICS_TOKEN = "watch"
COMMAND_SECONDS = 180.0
"""Timeout of a command; it takes a few seconds, and a multiple on a loaded machine."""


class WriterFleet:
    """Writers on one PostgreSQL and one folder of objects. ``database_url`` is also where profiles are counted."""

    def __init__(self, processes: Processes, home: Path, database_url: str, **more: str) -> None:
        self._processes = processes
        self._python: WarmPython | None = None
        self._database_url = database_url
        self.objects = home / "objects"
        self.disk = Disk(home / "disk", self.objects)
        self.clocks = {"w1": WallClock(home / "clocks" / "w1")}
        self.store: ObjectStore = open_store(str(self.objects))
        self.writers: dict[str, Process] = {}
        self.environment = {
            "LITHIFY_HOME": str(home),
            "DATABASE_URL": database_url,
            "OBJECT_STORE_URL": f"file://{self.objects}",
            "DJANGO_SETTINGS_MODULE": "webadmin.settings",
            "LITHIFY_TOKEN_KEYS": ",".join(settings.TOKEN_KEYS),
            "METRICS_TOKEN": METRICS_TOKEN,
            **self.disk.environment,
            **more,
        }

    def python(self, *arguments: str) -> str:
        """Run a program with the settings of the fleet; return its output."""
        if self._python is None:
            self._python = WarmPython(self._processes, self.environment)
        return self._python.run(*arguments, seconds=COMMAND_SECONDS)

    def start(self, *names: str) -> None:
        """Start those of these writers that do not run, and wait until all are in the published ring."""
        missing = [name for name in names if name not in self.writers or not self.writers[name].is_running()]
        for name in missing:
            clock = (self.clocks[name],) if name in self.clocks else ()
            environment = self.environment | environments(self.disk, *clock)
            self.writers[name] = self._processes.start_python(
                name, "manage.py", "writer", "--instance-id", name, environment=environment
            )
        for name in missing:
            self.writers[name].wait_for_line("writer_ready")
        wait_until(lambda: set(names) <= self.writable(), f"{names} are in the ring")

    def ring(self) -> Ring:
        """Return the ring that distributors read."""
        return load_ring(signed(self.store)) or EMPTY_RING

    def writable(self) -> set[str]:
        """Return the instances that accept profiles."""
        return {instance.id for instance in self.ring().instances if instance.is_writable()}

    def failed_segments(self) -> float:
        """Return the number of segments that could not be written, from the writers' metrics."""
        name, found = 'lithify_writer_segments_total{outcome="failed"} ', 0.0
        for instance in self.ring().instances:
            headers = {"Authorization": f"Bearer {METRICS_TOKEN}"}
            lines = httpx.get(f"{instance.address}/metrics", headers=headers, timeout=10).text.splitlines()
            found += sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))
        return found

    def notices(self) -> list[str]:
        """Return the notices of the front page."""
        said: list[str] = json.loads(self.python("-c", FRONT_PAGE).splitlines()[-1])
        return [text.replace("\xa0", " ") for text in said]

    def letters(self) -> int:
        """Return the number of dead letters."""
        return sum(1 for _ in self.store.list("dlq/"))

    def recover_letters(self) -> int:
        """Run the control task that recovers dead letters; return how many were recovered."""
        return int(self.python("-c", RECOVER))

    def found(self) -> dict[str, int]:
        """Return how often a query finds each profile."""
        with psycopg.connect(self._database_url) as connection:
            rows = connection.execute("SELECT object_key, metadata, size_bytes FROM profiles_block").fetchall()
        blocks = [(key, replace(decode_metadata(bytes(metadata)), size=size)) for key, metadata, size in rows]
        answer = top_functions(self.store, blocks, TENANT, SERVICE, PROFILE_TYPE, EVERYTHING)
        return {one.function: one.self_value // SAMPLE_VALUE for one in answer.functions if one.self_value}


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An acknowledged profile: its shard, the instance, and the time (``time.monotonic``)."""

    shard: int
    instance: str
    begun_at: float
    at: float


@dataclass(slots=True)
class Load:
    """Results of the senders so far; ``acknowledged`` is by profile name, unique among all loads."""

    number: int = field(default_factory=lambda: next(_loads))
    acknowledged: dict[str, Acknowledged] = field(default_factory=dict)
    unavailable: int = 0
    broken: list[str] = field(default_factory=list)

    def wait_for(self, more: int, seconds: float = 30.0) -> None:
        """Wait until ``more`` further profiles are acknowledged."""
        wanted = len(self.acknowledged) + more
        wait_until(lambda: len(self.acknowledged) >= wanted or self.broken, f"{more} more profiles", seconds)
        assert not self.broken, self.broken

    def by(self, instance: str) -> int:
        """Return how many profiles an instance has acknowledged."""
        return sum(1 for one in list(self.acknowledged.values()) if one.instance == instance)

    def takeover_seconds(self, shards: set[int], since: float) -> float:
        """Return the seconds from ``since`` until every one of these shards stored a new profile, or infinity."""
        first = dict.fromkeys(shards, float("inf"))
        for one in self.acknowledged.values():
            if one.shard in first and one.begun_at >= since:
                first[one.shard] = min(first[one.shard], one.at - since)
        return max(first.values(), default=0.0)


@contextmanager
def load_on(fleet: WriterFleet, senders: int = 6) -> Iterator[Load]:
    """Send profiles continuously until the block is left; then wait until each one in progress is acknowledged."""
    load, stop = Load(), threading.Event()
    threads = [
        threading.Thread(
            target=_guarded, args=(_Sender(fleet, number, number / senders, load), stop), name=f"sender-{number}"
        )
        for number in range(senders)
    ]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads), "a sender never got an answer"
    assert not load.broken, load.broken


def _guarded(sender: _Sender, stop: threading.Event) -> None:
    try:
        sender.run(stop)
    except BaseException as error:
        sender.load.broken.append(repr(error))
        raise


class _Sender:
    """One thread's client of the writers."""

    def __init__(self, fleet: WriterFleet, number: int, beginning: float, load: Load) -> None:
        """Initialise; ``beginning`` is the position in the ring, from 0 to 1, of the first shard."""
        self.load = load
        self._fleet = fleet
        self._number = number
        self._turn = round(beginning * fleet.ring().shards)
        self._chance = random.Random(number)
        self._ring = EMPTY_RING
        self._refreshed_at = 0.0
        self._breakers: dict[str, CircuitBreaker] = {}
        self._client = httpx.Client(timeout=ATTEMPT_SECONDS)

    def run(self, stop: threading.Event) -> None:
        """Send one profile after the other."""
        sent = 0
        with self._client:
            while not stop.is_set():
                sent += 1
                self._send(f"profile-{self.load.number}-{self._number}-{sent}")

    def _send(self, name: str) -> None:
        """Send a profile until it is acknowledged, always to the shard of the first decision."""
        begun_at, fingerprint = time.monotonic(), self._next_fingerprint()
        shard = self._decide(fingerprint).shard
        body = push_bytes(pushed_profile(name), shard=shard)
        while True:
            decision = self._decide(fingerprint)
            candidates = islice(decision.candidates(), ATTEMPTS)
            send = functools.partial(self._try, body)
            delivery = deliver(candidates, send, may_try=self._may_try)
            if delivery.answer is Answer.ACCEPTED:
                assert delivery.instance is not None
                self.load.acknowledged[name] = Acknowledged(shard, delivery.instance, begun_at, time.monotonic())
                return
            assert delivery.answer is not Answer.REFUSED, f"{name} was refused"
            self.load.unavailable += 1
            time.sleep(0.1)  # Delay of a client library before a retry.

    def _next_fingerprint(self) -> int:
        """Return a fingerprint that is placed on the next shard, so that all shards are used often."""
        self._turn += 1
        while True:
            fingerprint = self._chance.getrandbits(64)
            if (self._decide(fingerprint).shard - self._turn) % self._ring.shards == 0:
                return fingerprint

    def _decide(self, fingerprint: int) -> Decision:
        return Placer(self._newest_ring(), SPREAD).decide(TENANT, SERVICE, fingerprint)

    def _newest_ring(self) -> Ring:
        now = time.monotonic()
        if now - self._refreshed_at > REFRESH_SECONDS:
            self._ring, self._refreshed_at = self._fleet.ring(), now
        return self._ring

    def _try(self, body: bytes, instance: str) -> Answer:
        address = next(one.address for one in self._ring.instances if one.id == instance)
        try:
            status = self._client.post(
                f"{address}{PUSH_PATH}", content=body, headers={"Authorization": authorization_header(instance)}
            ).status_code
        except httpx.TransportError:
            status = 503
        answer = _answer(status)
        self._breaker(instance).record(answer, time.monotonic())
        return answer

    def _may_try(self, instance: str) -> bool:
        return self._breaker(instance).may_try(time.monotonic())

    def _breaker(self, instance: str) -> CircuitBreaker:
        return self._breakers.setdefault(instance, CircuitBreaker())


def _answer(status: int) -> Answer:
    if status == 200:
        return Answer.ACCEPTED
    return Answer.UNAVAILABLE if status in (429, 500, 503) else Answer.REFUSED
