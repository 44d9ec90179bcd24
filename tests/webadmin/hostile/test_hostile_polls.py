"""Whatever a worker sends that it should not: a stable code, nothing stored, counted where operators see it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from django.test import Client

from engine.lanes.profiles.jobs import ProfileMergeResult
from engine.protocol.messages import JobUpdate, PollRequest, UpdateStatus
from engine.protocol.tokens import TokenCodec
from engine.protocol.wire import CAPACITY_MAX, UPDATES_MAX, request_to_wire
from tests.block_factory import block_meta, merged, result_block, ulid
from tests.webadmin.hostile.conftest import Caller, every_row, refusals
from tests.webadmin.probes import probe
from tests.webadmin.service import Service
from webadmin.base import request_bounds
from webadmin.lanes.profiles.models import Block, Dataset
from webadmin.schedule.models import Attempt, Job
from webadmin.schedule.polls.view import token_codec

POLL = "/api/v1/jobs/poll"
GOOD = {"worker": "node-1", "build": "b", "capacity": 1, "updates": []}
UPDATE = {"job": "j", "token": "t", "status": "success"}
HUGE = 10**400


def polled(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in (GOOD | changes).items() if value is not ...}


def reported(**changes: Any) -> dict[str, Any]:
    return polled(updates=[{name: value for name, value in (UPDATE | changes).items() if value is not ...}])


MALFORMED: dict[str, tuple[Any, int, str]] = {
    "no body": (b"", 400, "invalid_message"),
    "no JSON": (b"{", 400, "parse_error"),
    "no Unicode": (b'{"worker": "\xff"}', 400, "parse_error"),
    "a list": ([], 400, "invalid_message"),
    "a number": (7, 400, "invalid_message"),
    "null": (b"null", 400, "invalid_message"),
    "JSON a million deep": (b"[" * 1_000_000, 400, "parse_error"),
    "objects in objects": (b'{"updates":' * 50_000 + b"1" + b"}" * 50_000, 400, "parse_error"),
    "NaN": (b'{"worker": "w", "build": "b", "capacity": NaN}', 400, "parse_error"),
    "infinity": (b'{"worker": "w", "build": "b", "capacity": -Infinity}', 400, "parse_error"),
    "a number without end": (json.dumps(polled(capacity=HUGE)).encode(), 400, "invalid_message"),
    "a number of 5000 digits": (b'{"capacity": ' + b"9" * 5_000 + b"}", 400, "parse_error"),
    "negative capacity": (polled(capacity=-1), 400, "invalid_message"),
    "absurd capacity": (polled(capacity=CAPACITY_MAX + 1), 400, "invalid_message"),
    "half a job": (polled(capacity=1.5), 400, "invalid_message"),
    "capacity as text": (polled(capacity="1"), 400, "invalid_message"),
    "capacity true": (polled(capacity=True), 400, "invalid_message"),
    "no worker": (polled(worker=...), 400, "invalid_message"),
    "an empty worker": (polled(worker=""), 400, "invalid_message"),
    "a long worker": (polled(worker="w" * 10_000), 400, "invalid_message"),
    "NUL in the worker": (polled(worker="a\0b"), 400, "invalid_message"),
    "half a character": (polled(worker="\ud800"), 400, "invalid_message"),
    "a build that is none": (polled(build=["b"]), 400, "invalid_message"),
    "updates that are none": (polled(updates="all"), 400, "invalid_message"),
    "too many updates": (polled(updates=[{}] * (UPDATES_MAX + 1)), 400, "invalid_message"),
    "the same update twice": (polled(updates=[UPDATE] * 2), 400, "invalid_message"),
    "an unknown status": (reported(status="lost"), 400, "invalid_message"),
    "a token that is none": (reported(token={"index": 1}), 400, "invalid_message"),
    "a token without end": (reported(token="1" * 100_000), 400, "invalid_message"),
    "no job": (reported(job=...), 400, "invalid_message"),
    "a result that is none": (reported(result=[1]), 400, "invalid_message"),
    "negative progress": (reported(progress={"done": -1, "total": 1}), 400, "invalid_message"),
    "a reason without words": (reported(reason={"error_class": "E"}), 400, "invalid_message"),
    "an offset before the object": (
        reported(reason={"error_class": "E", "message": "m", "offset": -2}),
        400,
        "invalid_message",
    ),
}


@pytest.fixture
def node(service: Service) -> Caller:
    """A worker's credential, known to the service under the name node-1."""
    caller = Caller("jobs:poll", name="node")
    assert caller.post(POLL, GOOD | {"capacity": 0}).status_code == 200
    return caller


def test_a_malformed_poll_is_refused_stores_nothing_and_is_counted(service: Service, node: Caller) -> None:
    service.add_segments(20)
    before, expected = every_row(), Counter[str]()
    for name, (body, status, code) in MALFORMED.items():
        answer = node.post(POLL, body)
        assert (answer.status_code, answer.json()["code"]) == (status, code), name
        expected[f"request.{code}"] += 1
        assert refusals(node.name) == expected, name
    assert every_row() == before


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "x"]
)
def test_another_content_type_is_refused_and_counted(node: Caller, content_type: str) -> None:
    before = every_row()
    answer = node.post(POLL, json.dumps(GOOD), content_type)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert every_row() == before
    assert refusals(node.name) == {"request.unsupported_media_type": 1}


def test_an_oversize_body_is_refused_and_counted(node: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bounds, "BODY_BYTES_MAX", 100)
    answer = node.post(POLL, GOOD | {"build": "b" * 90})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert refusals(node.name) == {"request.body_too_large": 1}


def test_a_name_of_another_credential_is_refused_and_counted(node: Caller) -> None:
    other = Caller("jobs:poll", name="other")
    before = every_row()
    answer = other.post(POLL, GOOD)
    assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")
    assert every_row() == before
    assert refusals(other.name) == {"request.name_taken": 1}


def test_a_credential_that_makes_up_names_is_stopped(node: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("webadmin.schedule.services.poll"), "NEW_NAMES_MAX", 3)
    for name in ("one", "two"):
        assert node.post(POLL, GOOD | {"worker": name}).status_code == 200
    before = every_row()
    answer = node.post(POLL, GOOD | {"worker": "three"})
    assert (answer.status_code, answer.json()["code"]) == (409, "too_many_names")
    assert every_row() == before
    assert refusals(node.name) == {"request.too_many_names": 1}
    assert node.post(POLL, GOOD | {"worker": "one"}).status_code == 200, "those that are known go on"


def test_refusals_are_in_the_metrics_and_in_the_admin(node: Caller, admin_client: Client) -> None:
    node.post(POLL, [])
    assert 'lithify_requests_refused_total{code="invalid_message"} 1.0' in probe("/metrics").content.decode()
    page = admin_client.get("/admin/access/refusalcount/").content.decode()
    assert "request.invalid_message" in page
    assert node.name in page


def test_polls_without_a_credential_write_nothing(service: Service) -> None:
    before = every_row()
    for bearer in ("", "lw_000000000000_" + "A" * 43):
        assert Caller(bearer=bearer).post(POLL, GOOD).status_code == 401
    assert every_row() == before


# Reports that are well formed, about jobs of others or under tokens that nobody gave


class Scene:
    """A victim that runs a job, and an attacker with a credential and a job of its own."""

    def __init__(self, service: Service) -> None:
        self.service = service
        service.add_segments(20)
        service.add_segments(20, shard=2, datasets=[("beta", "api")])
        self.attacker = Caller("jobs:poll", name="attacker")
        self.victims, self.own = service.worker("victim"), service.worker("mine", self.attacker.credential)
        [self.theirs] = self.victims.take()
        [self.mine] = self.own.take()
        self.own.poll(capacity=0)  # what a worker offered last is on record

    def report(self, job: str, token: str, status: UpdateStatus, result: Any = None) -> Any:
        """Report as the attacker; the answer."""
        update = JobUpdate(job=job, token=token, status=status, result=result)
        request = PollRequest(worker="mine", build="test", capacity=0, updates=(update,))
        answer = self.attacker.post(POLL, request_to_wire(request))
        assert answer.status_code == 200
        return answer.json()

    def finish(self, result: ProfileMergeResult | dict[str, Any]) -> Attempt:
        """Report the attacker's own job as done, with this result."""
        told = result.to_json() if isinstance(result, ProfileMergeResult) else result
        answer = self.report(self.mine.job, self.own.held[self.mine.job].token, UpdateStatus.SUCCESS, told)
        assert answer["leases"] == []
        return Attempt.objects.get(job__name=self.mine.job)


@pytest.fixture
def scene(service: Service) -> Scene:
    return Scene(service)


def foreign_tokens(scene: Scene) -> dict[str, tuple[str, str, bool]]:
    """Job and token by what is wrong with them, and whether the token was never issued to the sender."""
    theirs, mine = scene.victims.held[scene.theirs.job].token, scene.own.held[scene.mine.job].token
    index, key, signature = theirs.split(".")
    codec, credential = token_codec(), scene.attacker.credential.key_id
    alien = TokenCodec(["another service"]).encode(job=scene.theirs.job, index=int(index), credential=credential)
    never = codec.encode(job=scene.mine.job, index=10**9, credential=credential)
    return {
        "an unknown job": ("no-such-job", mine, True),
        "a foreign job, my token": (scene.theirs.job, mine, True),
        "a foreign job, its own token": (scene.theirs.job, theirs, True),
        "my job, a foreign token": (scene.mine.job, theirs, True),
        "a token with another index": (scene.theirs.job, f"{int(index) + 1}.{key}.{signature}", True),
        "a token of index 0": (scene.theirs.job, f"0.{key}.{signature}", True),
        "a token beyond all indexes": (scene.theirs.job, f"{'9' * 19}.{key}.{signature}", True),
        "a token with another signature": (scene.theirs.job, f"{index}.{key}.{signature[::-1]}", True),
        "a token of another key": (scene.theirs.job, alien, True),
        "no token at all": (scene.theirs.job, "let me in", True),
        "a token never issued": (scene.mine.job, never, False),
        "a foreign job, a token never issued": (
            scene.theirs.job,
            codec.encode(job=scene.theirs.job, index=int(index), credential=credential),
            False,
        ),
    }


FOREIGN = (
    *("an unknown job", "a foreign job, my token", "a foreign job, its own token", "my job, a foreign token"),
    *("a token with another index", "a token of index 0", "a token beyond all indexes"),
    *("a token with another signature", "a token of another key", "no token at all", "a token never issued"),
    "a foreign job, a token never issued",
)


@pytest.mark.parametrize("what", FOREIGN)
def test_a_report_that_is_not_the_senders_to_make_changes_nothing(scene: Scene, what: str) -> None:
    job, token, is_forged = foreign_tokens(scene)[what]
    before = every_row()
    for times, status in enumerate(UpdateStatus, 1):
        answer = scene.report(job, token, status, merged(scene.theirs).to_json())
        assert answer["leases"] == []
        assert every_row() == before
        assert refusals(scene.attacker.name) == ({"request.invalid_token": times} if is_forged else {})


def test_the_list_of_foreign_tokens_is_whole(scene: Scene) -> None:
    assert set(FOREIGN) == set(foreign_tokens(scene))


def test_a_stale_token_is_in_the_course_of_things_and_not_counted(scene: Scene) -> None:
    token = scene.own.held[scene.mine.job].token
    scene.finish(merged(scene.mine))
    before = every_row()
    assert scene.report(scene.mine.job, token, UpdateStatus.IN_PROGRESS)["leases"] == []
    assert every_row() == before
    assert refusals(scene.attacker.name) == {}


# Results under the right token that nobody should accept


def changed(scene: Scene, *, meta: dict[str, Any] | None = None, block: dict[str, Any] | None = None) -> Any:
    """The right result with something else in its block's metadata or report."""
    result = merged(scene.mine)
    [first] = result.blocks
    good = block_meta(first.id, shard=2, level=1, tenant="beta", datasets=[("beta", "api")], with_index=True)
    spoiled = replace(result_block(replace(good, **(meta or {}))), **(block or {}))
    return replace(result, blocks=(spoiled,))


def with_times(scene: Scene, low: int, high: int) -> Any:
    """The right result, its first dataset and the block reaching over another time."""
    [first] = merged(scene.mine).blocks
    good = block_meta(first.id, shard=2, level=1, tenant="beta", datasets=[("beta", "api")], with_index=True)
    datasets = (replace(good.datasets[0], min_time_ms=low, max_time_ms=high), *good.datasets[1:])
    return changed(scene, meta={"min_time_ms": low, "max_time_ms": high, "datasets": datasets})


def as_json(result: ProfileMergeResult, **fields: Any) -> dict[str, Any]:
    return result.to_json() | fields


DAY_MS = 86_400_000
STRINGS = ("", "__profile_type__", "acme", "api", "beta", "cpu", "service_name")
RESULTS = {
    "the data of next week": lambda s: with_times(s, s.service.clock.now_ms, s.service.clock.now_ms + 7 * DAY_MS),
    "data until the end of time": lambda s: with_times(s, s.service.clock.now_ms, (1 << 63) - 1),
    "data older than its sources": lambda s: with_times(s, 1, s.service.clock.now_ms),
    "time that runs backwards": lambda s: with_times(s, s.service.clock.now_ms + 400, s.service.clock.now_ms + 300),
    "an id from the future": lambda s: renamed(s, ulid(s.service.clock.now_ms + 365 * DAY_MS, 1)),
    "an id from the past": lambda s: renamed(s, ulid(1, 1)),
    "an id that is no ULID": lambda s: renamed(s, "../../../etc/passwd/shadow"),
    "the id of its own source": lambda s: renamed(s, s.mine.sources[0].id),
    "the object of another tenant": lambda s: changed(s, block={"key": "blocks/2/acme/x/block.bin"}),
    "the object of a foreign segment": lambda s: changed(s, block={"key": s.theirs.sources[0].key}),
    "a key out of the store": lambda s: changed(s, block={"key": "../secret"}),
    "another tenant": lambda s: changed(s, meta={"tenant": "acme", "string_table": STRINGS}),
    "another shard": lambda s: changed(s, meta={"shard": 1}),
    "the same level": lambda s: changed(s, meta={"compaction_level": 0, "tenant": ""}),
    "the highest level": lambda s: changed(s, meta={"compaction_level": 3}),
    "a level out of numbers": lambda s: changed(s, meta={"compaction_level": (1 << 32) - 1}),
    "a size of nothing": lambda s: changed(s, block={"size": 0}),
    "a size of eight exabytes": lambda s: changed(s, block={"size": (1 << 63) - 1}),
    "a size above all": lambda s: changed(s, block={"size": 1 << 63}),
    "a negative size": lambda s: changed(s, block={"size": -1}),
    "an impossible checksum": lambda s: changed(s, block={"crc32c": 1 << 32}),
    "metadata of the moon": lambda s: changed(s, block={"metadata": b"\xff" * 1000}),
    "no datasets": lambda s: changed(s, meta={"datasets": ()}),
    "no blocks": lambda s: replace(merged(s.mine), blocks=()),
    "a block twice": lambda s: replace(merged(s.mine), blocks=merged(s.mine).blocks * 2),
    "ten thousand blocks": lambda s: as_json(merged(s.mine), blocks=merged(s.mine).to_json()["blocks"] * 10_001),
    "the sources of another": lambda s: replace(merged(s.mine), sources=merged(s.theirs).sources),
    "the result of another": lambda s: merged(s.theirs),
    "its sources and those of another": lambda s: replace(
        merged(s.mine), sources=(*merged(s.mine).sources, *merged(s.theirs).sources)
    ),
    "two thousand sources": lambda s: as_json(merged(s.mine), sources=["0" * 26] * 2000),
    "delete requests nobody made": lambda s: replace(merged(s.mine), masks=(1, 2)),
    "delete requests that are no numbers": lambda s: as_json(merged(s.mine), masks=["all"]),
    "another kind": lambda s: as_json(merged(s.mine), kind="tables"),
    "rows below nothing": lambda s: as_json(merged(s.mine), rows_read=-1),
    "nothing at all": lambda s: {},
}


def renamed(scene: Scene, block_id: str) -> Any:
    """The right result under another id, with the key that follows from it where it is one."""
    good = changed(scene)
    [block] = good.blocks
    meta = block_meta(
        block.id if "/" in block_id else block_id,
        shard=2,
        level=1,
        tenant="beta",
        datasets=[("beta", "api")],
        with_index=True,
    )
    times = block_meta(block.id, shard=2, level=1, tenant="beta", datasets=[("beta", "api")], with_index=True)
    meta = replace(meta, min_time_ms=times.min_time_ms, max_time_ms=times.max_time_ms, datasets=times.datasets)
    return replace(good, blocks=(replace(result_block(meta), id=block_id),))


INDEX = (
    "Block",
    "Dataset",
    "AcceptedId",
    "Tombstone",
    "BlockLineage",
    "LabelSets",
    "TenantService",
    "Tenant",
    "DatasetName",
)


@pytest.mark.parametrize("spoil", RESULTS.values(), ids=RESULTS.keys())
def test_a_bad_result_is_a_failure_with_its_reason_and_leaves_the_index_alone(scene: Scene, spoil: Any) -> None:
    before = every_row()
    attempt = scene.finish(spoil(scene))
    assert attempt.outcome == "refused"
    assert attempt.reason["error_class"] in {"ResultRefused", "InvalidMessage"}
    after = every_row()
    assert {name: after[name] for name in INDEX} == {name: before[name] for name in INDEX}
    job = Job.objects.get(name=scene.mine.job)
    assert (job.state, job.failures) == ("waiting", 1)
    assert after["Job"][0] == before["Job"][0], "the other job is as it was"


def test_the_right_result_is_accepted(scene: Scene) -> None:
    assert scene.finish(changed(scene)).outcome == "completed"
    assert Block.objects.filter(level=1, tenant__name="beta").count() == 1
    assert Dataset.objects.filter(block__level=1, tenant__name="acme").count() == 0
