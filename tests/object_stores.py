"""Object stores for tests: a folder, and a real S3 server (moto) in a process of its own, spoken to over HTTP."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config

from engine.storage import ObjectStore, open_store
from engine.storage.retry import RetryPolicy

READY_SECONDS = 60.0
START_ATTEMPTS = 3
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running S3 server; ``endpoint`` is its URL."""

    endpoint: str

    def new_bucket(self) -> str:
        """Make a bucket for one caller and return its name."""
        name = f"bucket-{uuid4().hex}"
        client = boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1", config=PATIENT, **self.keys())
        try:
            client.create_bucket(Bucket=name)
        finally:
            client.close()
        return name

    def store_url(self, bucket: str, prefix: str = "") -> str:
        """Return the URL of a bucket here, as ``open_store`` takes it."""
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}"

    @staticmethod
    def keys() -> dict[str, str]:
        """Return the credentials in the form of boto3's arguments."""
        return {name.lower(): value for name, value in CREDENTIALS.items()}


PATIENT = Config(retries={"total_max_attempts": 5, "mode": "standard"})
QUICK_RETRY = RetryPolicy(attempts=4, pause_first=0.001, pause_max=0.01)


@contextmanager
def running_s3_server() -> Iterator[S3Server]:
    """Start an S3 server on a free port of the loopback interface, and end it afterwards."""
    process, port = _start()
    try:
        yield S3Server(f"http://127.0.0.1:{port}")
    finally:
        process.send_signal(signal.SIGKILL)  # It keeps everything in memory: nothing to lose.
        process.wait()


@pytest.fixture(scope="session")
def s3_credentials() -> Iterator[None]:
    """What boto3 looks for in the environment; processes that are to have it too must be started after this."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def s3_server(s3_credentials: None) -> Iterator[S3Server]:
    """One S3 server for the tests of this process."""
    with running_s3_server() as server:
        yield server


@pytest.fixture
def s3_store(s3_server: S3Server) -> Iterator[ObjectStore]:
    """An empty bucket below a prefix, over HTTP."""
    store = open_store(s3_server.store_url(s3_server.new_bucket(), "some/prefix"), retry_policy=QUICK_RETRY)
    yield store
    store.close()


def free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start() -> tuple[subprocess.Popen[bytes], int]:
    for _ in range(START_ATTEMPTS):  # Another process may take the port before the server does.
        port = free_port()
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if _is_ready(process, port):
            return process, port
        process.kill()
        process.wait()
    raise RuntimeError(f"the S3 server did not answer within {READY_SECONDS} s")


def _is_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/moto-api/data.json")
            if connection.getresponse().status == http.client.OK:
                return True
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    return False
