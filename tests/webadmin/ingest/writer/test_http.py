"""The writer's HTTP side: what is refused before it is read, and the health of the process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import httpx
import pytest
from django.conf import settings

from engine.core.metrics import WRITER_METRICS
from engine.storage import ObjectStore
from tests.webadmin.ingest.writer.pushes import push_bytes, pushed_profile
from webadmin.ingest.writer import segment_writer
from webadmin.ingest.writer.credential import authorization_header, is_authorized
from webadmin.ingest.writer.gathering import ACCEPTED
from webadmin.ingest.writer.http import PUSH_PATH, WriterSite
from webadmin.ingest.writer.measures import WriterMeasures
from webadmin.ingest.writer.segment_writer import SegmentWriter, WriterLimits

PROFILE = push_bytes(pushed_profile("f"))


class Site:
    """A writer behind its site, and a client that may use it."""

    def __init__(self, store: ObjectStore, limits: WriterLimits) -> None:
        self.problems: list[str] = []
        measures = WriterMeasures()
        self.writer = SegmentWriter("w1", store, limits, measures)
        site = WriterSite("w1", self.writer, measures, lambda: self.problems)
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(site),  # type: ignore[arg-type]
            base_url="http://writer",
            headers={"Authorization": authorization_header("w1")},
        )

    async def push(self, body: bytes = PROFILE, **options: object) -> httpx.Response:
        return await self.client.post(PUSH_PATH, content=body, **options)  # type: ignore[arg-type]


@pytest.fixture
def visit(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run something with a site whose index takes everything."""
    monkeypatch.setattr(segment_writer, "register", lambda metas, actor: [ACCEPTED for _ in metas])

    def run(story: Callable[[Site], Awaitable[None]], limits: WriterLimits | None = None) -> None:
        async def told() -> None:
            site = Site(store, limits or WriterLimits(flush_seconds=0.01))
            try:
                await story(site)
            finally:
                await site.client.aclose()
                await site.writer.drain()

        asyncio.run(told())

    return run


def test_a_push_is_answered_without_words_and_measured(visit: Callable[..., None]) -> None:
    async def story(site: Site) -> None:
        answer = await site.push()
        assert (answer.status_code, answer.content) == (200, b"")
        assert (await site.client.get("/metrics")).status_code == 401
        token = {"Authorization": f"Bearer {settings.METRICS_TOKEN}"}
        shown = (await site.client.get("/metrics", headers=token)).text
        assert 'lithify_writer_pushes_total{code="ok"} 1.0' in shown
        assert 'lithify_writer_segments_total{outcome="indexed"} 1.0' in shown
        assert not [metric.name for metric in WRITER_METRICS if f"# TYPE {metric.name} {metric.kind}" not in shown]

    visit(story)


@pytest.mark.parametrize(
    "header",
    ["", "Bearer ", "Bearer 00", "Bearer .", "Basic abc", authorization_header("w1")[:-1], authorization_header("w2")],
)
def test_only_distributors_may_push(visit: Callable[..., None], header: str) -> None:
    async def story(site: Site) -> None:
        answer = await site.push(headers={"Authorization": header})
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")

    visit(story)


def test_keys_rotate(settings) -> None:  # type: ignore[no-untyped-def]
    settings.TOKEN_KEYS = ["old"]
    before = authorization_header("w1")
    settings.TOKEN_KEYS = ["new", "old"]
    assert is_authorized(before, "w1")
    assert authorization_header("w1") != before
    settings.TOKEN_KEYS = ["new"]
    assert not is_authorized(before, "w1")


@pytest.mark.parametrize("made_at_s", [1_800_000_000, 1_800_000_000 + 3599])
def test_a_header_is_good_for_an_hour_at_least_and_two_at_most(made_at_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [float(made_at_s)]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    header = authorization_header("w1")
    found = {}
    for seconds in (-86_400, -3600 - 301, -299, 0, 3600, 3600 + 299, 2 * 3600 + 301, 86_400):
        clock[0] = made_at_s + seconds
        found[seconds] = is_authorized(header, "w1")
    assert found == dict(zip(found, [False, False, True, True, True, True, False, False], strict=True))


@pytest.mark.parametrize("body", [b"", b"garbage", PROFILE[:-1], push_bytes(pushed_profile("f"), shard=0)])
def test_what_no_distributor_sends_is_a_bad_push(visit: Callable[..., None], body: bytes) -> None:
    async def story(site: Site) -> None:
        answer = await site.push(body)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_push")

    visit(story)


def test_what_is_held_is_bounded_and_the_rest_goes_elsewhere(visit: Callable[..., None]) -> None:
    async def story(site: Site) -> None:
        first = asyncio.ensure_future(site.push())
        while not site.writer.held_bytes:
            await asyncio.sleep(0)
        second = await site.push()
        assert (second.status_code, second.json()["code"]) == (429, "overloaded")
        assert second.headers["retry-after"] == "1"
        site.writer._flush()
        assert (await first).status_code == 200
        assert site.writer.held_bytes == 0
        assert site.writer.has_room(len(PROFILE))

    visit(story, WriterLimits(flush_seconds=3600, memory_bytes=len(PROFILE) + 10))


def test_a_push_larger_than_the_memory_is_let_in_alone(visit: Callable[..., None]) -> None:
    async def story(site: Site) -> None:
        assert (await site.push()).status_code == 200

    visit(story, WriterLimits(flush_seconds=0.01, memory_bytes=1))


def test_a_length_that_is_missing_or_too_large_is_refused_unread(visit: Callable[..., None]) -> None:
    async def story(site: Site) -> None:
        async def chunks():  # type: ignore[no-untyped-def]
            yield PROFILE

        unsized = await site.client.post(PUSH_PATH, content=chunks())
        assert (unsized.status_code, unsized.json()["code"]) == (411, "length_required")
        huge = await site.push(headers={"Content-Length": str(1 << 40)})
        assert (huge.status_code, huge.json()["code"]) == (400, "too_large")

    visit(story)


def test_while_draining_nothing_is_taken_and_the_process_is_not_ready(visit: Callable[..., None]) -> None:
    async def story(site: Site) -> None:
        site.writer.is_draining = True
        answer = await site.push()
        assert (answer.status_code, answer.json()["code"]) == (503, "draining")

    visit(story)


def test_health_is_ok_and_readiness_lists_problems(visit: Callable[..., None]) -> None:
    async def story(site: Site) -> None:
        assert (await site.client.get("/readyz")).json() == {"status": "ready", "problems": []}
        site.problems = ["it is not registered"]
        answer = await site.client.get("/readyz")
        assert (answer.status_code, answer.json()["problems"]) == (503, ["it is not registered"])
        assert (await site.client.get("/healthz")).status_code == 200
        assert (await site.client.get("/")).status_code == 404
        assert (await site.client.get(PUSH_PATH)).status_code == 405
        assert (await site.client.delete("/healthz")).status_code == 404

    visit(story)
