"""Push throughput of the write path, from the HTTP endpoint to the acknowledgement of durable and indexed profiles.

Three sizes of profile (about 2, 20 and 200 KB of uncompressed protobuf) in equal shares by bytes, gzipped in transfer,
``profiles_per_push`` series per request. The rate is MB of uncompressed pprof per CPU second of all serving processes:
web under gunicorn, segment writer, PostgreSQL; the senders are not counted. Latency is that of whole requests.
"""

from __future__ import annotations

import gzip
import http.client
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg

from engine.formats.proto.push_pb2 import PushRequest
from tests.bench.database import embedded_postgresql, manage
from tests.bench.figures import Figures, process_seconds
from tests.bench.segment_build import SAMPLES, message
from tests.processes import LOOPBACK, Processes, answers_http, free_port
from webadmin.serving import GUNICORN_SETTINGS

NAME = "ingest"
SEED = 7
DISTINCT = 24
SENDERS = 48
"""Concurrent requests; each mostly waits for a flush."""
WEB_THREADS = 64
PROFILES_PER_PUSH = 40
"""Series per push of an agent that collects from all programs of a host; an SDK sends one or two."""
WARM_SECONDS = 2.0
SECONDS, SECONDS_FULL = 8.0, 30.0
SERVICES = 8
SIZES = {"2kb": 100, "20kb": 10, "200kb": 1}
"""Profiles of each size per round, with equal total bytes."""
UNLIMITED = {"bytes_per_second": 1 << 40, "burst_bytes": 1 << 40}


def run(full: bool = False) -> Figures:
    """Load one web process and one writer, first with many profiles per push, then with one."""
    seconds = SECONDS_FULL if full else SECONDS
    pools = {name: [message(SAMPLES[name], seed) for seed in range(DISTINCT if name != "200kb" else 4)] for name in SIZES}  # fmt: skip  # noqa: E501
    with embedded_postgresql() as url, served(url) as (address, pids):
        batched = Load(address, pools, PROFILES_PER_PUSH).measure(pids, seconds)
        single = Load(address, pools, 1).measure(pids, seconds)
    figures = {name: batched[name] for name in ("mb_per_s_core", "mb_per_s", "p50_ms", "p99_ms")}
    alone = {f"{name}_single": value for name, value in single.items()}
    shares = {name: value for name, value in batched.items() if name.endswith("_cpu_share")}
    return Figures(
        parameters={
            "profiles_per_push": PROFILES_PER_PUSH,
            "senders": SENDERS,
            "web_threads": WEB_THREADS,
            "seconds": seconds,
        },
        figures=figures | shares | alone,
    )


@contextmanager
def served(url: str) -> Iterator[tuple[str, dict[str, int]]]:
    """Start the write path; yield its address, and the process ids of its parts by name."""
    with tempfile.TemporaryDirectory(prefix="lithify-bench-") as home, Processes(quiet=True) as processes:
        environment = {
            "LITHIFY_HOME": home,
            "DATABASE_URL": url,
            "OBJECT_STORE_URL": f"file://{Path(home) / 'objects'}",
            "TRUST_TENANT_HEADER": "1",
            "DJANGO_SETTINGS_MODULE": "webadmin.settings",
            "LOG_LEVEL": "WARNING",
        }
        manage(environment, "migrate", "--verbosity", "0")
        with psycopg.connect(url, autocommit=True) as connection:
            for name, value in UNLIMITED.items():
                connection.execute(
                    "INSERT INTO ingest_pushlimitchange (tenant, name, value, is_superseded, at, actor, why)"
                    " VALUES ('', %s, %s, false, now(), 'bench', 'bench')",
                    (name, value),
                )
            backend = psutil.Process(connection.info.backend_pid)
            database = backend.ppid()
        writer = processes.start_python("writer", "manage.py", "writer", environment=environment)
        port = free_port()
        web = processes.start_python(
            "web",
            *("-m", "gunicorn", "--config", GUNICORN_SETTINGS, "--bind", f"{LOOPBACK}:{port}"),
            *("--workers", "1", "--threads", str(WEB_THREADS)),
            environment=environment,
        )
        processes.wait_until_answers(writer, lambda: len(ring_of(url)) > 0)
        processes.wait_until_answers(web, lambda: answers_http(f"http://{LOOPBACK}:{port}/healthz"))
        yield f"http://{LOOPBACK}:{port}", {"web": web.pid, "writer": writer.pid, "database": database}


def ring_of(url: str) -> Sequence[tuple[object, ...]]:
    """Return the registered writers."""
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT name FROM placement_instance").fetchall()


class Load:
    """Senders that push continuously."""

    def __init__(self, address: str, pools: dict[str, list[bytes]], profiles_per_push: int) -> None:
        self._netloc = urlsplit(address).netloc
        self._pools = pools
        self._per_push = profiles_per_push
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._answered: list[tuple[float, float, int]] = []
        self._failures: list[str] = []

    def measure(self, pids: dict[str, int], seconds: float) -> dict[str, float]:
        """Push for ``seconds`` after a warm-up; return rate, latency and CPU time by process."""
        threads = [threading.Thread(target=self._send, args=(number,)) for number in range(SENDERS)]
        for thread in threads:
            thread.start()
        time.sleep(WARM_SECONDS)
        before, begun = {name: process_seconds(pid) for name, pid in pids.items()}, time.monotonic()
        time.sleep(seconds)
        used = {name: process_seconds(pid) - before[name] for name, pid in pids.items()}
        ended = time.monotonic()
        self._stop.set()
        for thread in threads:
            thread.join()
        assert not self._failures, self._failures[:3]
        measured = [one for one in self._answered if begun <= one[0] < ended]
        took = sorted(latency for _, latency, _ in measured)
        cpu, size = sum(used.values()), sum(size for _, _, size in measured)
        return {
            "mb_per_s_core": size / 1e6 / cpu,
            "mb_per_s": size / 1e6 / (ended - begun),
            "p50_ms": statistics.median(took) * 1000,
            "p99_ms": took[int(len(took) * 0.99)] * 1000,
            **{f"{name}_cpu_share": seconds_used / cpu for name, seconds_used in used.items()},
        }

    def _send(self, number: int) -> None:
        connection = http.client.HTTPConnection(self._netloc, timeout=60)
        draw = random.Random(SEED + number)
        headers = {"Content-Type": "application/proto", "Content-Encoding": "gzip"}
        while not self._stop.is_set():
            profiles = self._profiles(draw)
            body = gzip.compress(push_of(profiles, draw), 1)
            started = time.monotonic()
            connection.request("POST", "/push.v1.PusherService/Push", body, headers)
            answer = connection.getresponse()
            said = answer.read()
            ended = time.monotonic()
            with self._lock:
                if answer.status != 200:
                    self._failures.append(f"{answer.status} {said!r}")
                    return
                self._answered.append((ended, ended - started, sum(map(len, profiles))))

    def _profiles(self, draw: random.Random) -> list[bytes]:
        names = draw.choices(list(SIZES), list(SIZES.values()), k=self._per_push)
        return [at_time(draw.choice(self._pools[name]), time.time_ns()) for name in names]


def push_of(profiles: Sequence[bytes], draw: random.Random) -> bytes:
    """Return a push with one series per profile, labelled as the SDK does."""
    request = PushRequest()
    for profile in profiles:
        series = request.series.add()
        labels = {
            "__name__": "process_cpu",
            "service_name": f"service-{draw.randrange(SERVICES)}",
            "region": "eu",
            "host": f"host-{draw.randrange(50)}",
            "otel.scope.name": "com.grafana.pyroscope/python",
            "otel.scope.version": "1.4.0",
            "process.runtime.name": "cpython",
        }
        for name, value in labels.items():
            series.labels.add(name=name, value=value)
        series.samples.add(raw_profile=profile, ID="00000000-0000-0000-0000-000000000000")
    return request.SerializeToString()


def at_time(profile: bytes, time_ns: int) -> bytes:
    """Return the profile with another time: of a repeated scalar field the last value counts."""
    field = bytearray(b"\x48")
    while time_ns >= 0x80:
        field.append(time_ns & 0x7F | 0x80)
        time_ns >>= 7
    return profile + bytes([*field, time_ns])
