"""The SDK that people run, unmodified and configured only with our address, through every process of the write path."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.e2e.sdk_program import SERVICE
from tests.e2e.write_path import WritePath
from tests.processes import ROOT, Processes, wait_until
from tests.webadmin.ingest.pushes import PUSH, push_body

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("write_path")]

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
PROGRAM = str(ROOT / "tests/e2e/sdk_program.py")
WORK_SECONDS = "2.5"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WritePath]:
    with Processes() as processes:
        yield WritePath(tmp_path_factory.mktemp("write_path"), processes)


def found_again(path: WritePath, tenant: str, credential: str) -> None:
    """Hold that the index leads to the program's profiles and that they name its hot function."""
    selector = f'{{service_name="{SERVICE}", __profile_type__="{CPU}"}}'
    blocks = path.found(credential, tenant, selector)
    assert blocks
    answer = path.top_functions(blocks, tenant, SERVICE, CPU)
    assert any("sum_of_squares" in one.function for one in answer.functions[:2]), answer.functions
    assert answer.total_value > 500_000_000, "nanoseconds: the program worked for 2.5 s"


def test_the_unmodified_sdk_delivers_profiles_that_are_found_again(path: WritePath) -> None:
    program = path.processes.start_python("program", PROGRAM, path.address, WORK_SECONDS)
    assert program.wait(30) == 0
    reader = path.credential("reader", "blocks:query", "tenant:anonymous")
    found_again(path, "anonymous", reader)
    wait_until(lambda: path.counts().get(("anonymous", "accepted"), 0) >= 2, "pushes are counted", 10)


def test_the_sdk_pushes_with_a_credential_for_its_tenant(path: WritePath) -> None:
    password = path.credential("program", "profiles:push", "blocks:query", "tenant:team-a")
    program = path.processes.start_python("program", PROGRAM, f"{path.address}/", WORK_SECONDS, "team-a", password)
    assert program.wait(30) == 0
    found_again(path, "team-a", password)


def test_a_wrong_password_stores_nothing_and_is_counted(path: WritePath) -> None:
    program = path.processes.start_python("program", PROGRAM, path.address, "1.2", "team-b", "wrong")
    assert program.wait(30) == 0
    assert path.found(path.credential("team-b", "blocks:query", "tenant:team-b"), "team-b", "{}") == []
    wait_until(lambda: path.counts().get(("", "credential_refused")), "refusals are counted", 10)


def test_a_base_address_with_slashes_is_no_redirect(path: WritePath) -> None:
    connection = http.client.HTTPConnection(urlsplit(path.address).netloc, timeout=10)
    for prefix in ("/", "/profiles/", "//a//b/"):
        connection.request("POST", f"{prefix}{PUSH}", push_body(), {"Content-Type": "application/proto"})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
    connection.request("POST", PUSH, b"\xff\xff", {"Content-Type": "application/proto"})
    answer = connection.getresponse()
    assert (answer.status, json.load(answer)["code"]) == (400, "invalid_argument")
    connection.close()
