"""A database that is partitioned away or slow: requests end, readiness turns, nothing is lost.

The proxy before PostgreSQL drops what comes, as a network does that is partitioned.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx

from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.profile_block.model import BlockMeta
from engine.formats.proto import block_list_pb2
from tests.faults.all_lanes import all_lanes
from tests.faults.stack import SETTLE_SECONDS, STATEMENT_SECONDS, FaultStack
from tests.processes import wait_until
from webadmin.base.database.deadlines import ANSWER_GRACE_SECONDS, READINESS_SECONDS
from webadmin.base.database.url import CONNECTION
from webadmin.base.error_answers import RETRY_SECONDS

CONNECT_SECONDS = float(CONNECTION["connect_timeout"])
REVOKED_SECONDS = 30.0
LET_IN, REFUSED = "no segment writer accepts profiles", "credentials cannot be checked now"
ISSUE = """
import django, json
django.setup()
from webadmin.base.access.services import issue_worker_credential
scopes = ["profiles:push", "tenant:acme"]
print(json.dumps({name: issue_worker_credential(name=name, scopes=scopes, actor="test").wire_form
                  for name in ("lost", "kept")}))
"""
SLACK_SECONDS = 8.0
"""For a machine with other work to do."""


def test_requests_end_and_readiness_fails_while_the_database_is_partitioned_away(
    fault_stack: FaultStack, s3_credentials: None, tmp_path: Path
) -> None:
    shard = fault_stack.new_shard()
    segments = fault_stack.put_segments(shard, 4)
    expected = fault_stack.samples(segments)
    with all_lanes(fault_stack, tmp_path, "partition") as lanes:
        lanes.start()
        with fault_stack.around.database.partitioned():
            check_requests_end(fault_stack, segments)
        for port in fault_stack.ports:
            ready = f"http://127.0.0.1:{port}/readyz"
            wait_until(lambda url=ready: httpx.get(url, timeout=60).is_success, f"{ready} is ready", SETTLE_SECONDS)
        fault_stack.register(segments)
        fault_stack.check(shard, expected)
        lanes.check()


def check_requests_end(stack: FaultStack, segments: list[tuple[str, BlockMeta]]) -> None:
    """Assert that every kind of request is answered in time, and that the pages name the database."""
    for port in stack.ports:
        started = time.monotonic()
        answer = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=60)
        assert (answer.status_code, "database" in answer.text) == (503, True)
        assert time.monotonic() - started < CONNECT_SECONDS + READINESS_SECONDS + SLACK_SECONDS
    assert httpx.get(f"{stack.service.url}/healthz", timeout=10).status_code == 200
    page = httpx.get(f"{stack.service.url}/admin/", cookies={"sessionid": "a" * 32}, timeout=60)
    assert (page.status_code, page.headers.get("Retry-After")) == (503, str(RETRY_SECONDS))
    assert "The database does not answer" in page.text
    started = time.monotonic()
    answer = _add(stack, segments)
    assert (answer.status_code, answer.headers.get("Retry-After")) == (503, "1"), answer.text
    limit = CONNECT_SECONDS + STATEMENT_SECONDS + ANSWER_GRACE_SECONDS + SLACK_SECONDS
    assert time.monotonic() - started < limit


def test_a_revoked_credential_is_refused_while_the_database_is_partitioned_away(fault_stack: FaultStack) -> None:
    """Each web process knows both credentials; it learns from the object store that one was revoked since."""
    issued = json.loads(fault_stack.python("-c", ISSUE))
    for port in fault_stack.ports:
        for secret in issued.values():
            wait_until(lambda port=port, secret=secret: LET_IN in _push(port, secret), "it is known", SETTLE_SECONDS)
    fault_stack.python("manage.py", "credentials", "revoke", "lost", "--why", "a test")
    revoked_at = time.monotonic()
    with fault_stack.around.database.partitioned():
        for port in fault_stack.ports:
            left = REVOKED_SECONDS - (time.monotonic() - revoked_at)
            wait_until(lambda port=port: REFUSED in _push(port, issued["lost"]), "it is refused", left)
            assert LET_IN in _push(port, issued["kept"]), "and nobody else is"
    assert time.monotonic() - revoked_at < REVOKED_SECONDS + SLACK_SECONDS


def test_a_slow_database_slows_the_work_and_loses_none_of_it(
    fault_stack: FaultStack, s3_credentials: None, tmp_path: Path
) -> None:
    with all_lanes(fault_stack, tmp_path, "slow") as lanes:
        lanes.start()
        with fault_stack.around.database.slow(0.03):
            fault_stack.wait_until_named("the database takes")
            lanes.wait_until_swapped({"profiles"})
        lanes.check()


def _push(port: int, secret: str) -> str:
    """Push a profile; return the answer. Nobody writes segments here: what is let in is answered LET_IN."""
    place = (
        f"http://127.0.0.1:{port}/ingest?name=shop&format=folded&from={int(time.time()) - 10}&until={int(time.time())}"
    )
    return httpx.post(place, content=b"a;b 1\n", headers={"Authorization": f"Bearer {secret}"}, timeout=60).text


def _add(stack: FaultStack, segments: list[tuple[str, BlockMeta]]) -> httpx.Response:
    """Register segments once."""
    entries = [block_list_pb2.BlockEntry(metadata=encode_metadata(meta), size=meta.size) for _, meta in segments]
    return httpx.post(
        f"{stack.service.url}/api/v1/blocks",
        content=block_list_pb2.BlockMetaList(blocks=entries).SerializeToString(),
        headers={"Authorization": f"Bearer {stack.credentials['writer']}", "Content-Type": "application/x-protobuf"},
        timeout=60,
    )
