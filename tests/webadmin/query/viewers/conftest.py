"""A viewer with a credential, asking a web process whose store the test has filled."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from django.http import HttpResponse
from django.test import Client
from google.protobuf import json_format
from google.protobuf.message import Message

from engine.core import ulids
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.proto import querier_pb2
from engine.ingest.segments.segment import SegmentBuilder
from tests.segments import put_segment
from tests.webadmin.ingest.conftest import credential  # noqa: F401  (a fixture)
from tests.webadmin.query.stored import Stored
from webadmin.base.access.scopes import SCOPE_QUERY

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
EXAMPLE = {"main;work;parse": 30, "main;work;render": 50, "main;work": 5, "main;idle": 10, "gc": 5}
"""Example 1 of the sheet, section 5.7."""
OTHER_EXAMPLE = {"main;work;parse": 60, "main;work;render": 20, "main;net": 15, "gc": 5}
"""The right side of its example 3."""

Answer = TypeVar("Answer", bound=Message)


@dataclass
class Viewer:
    """Writes folded stacks as segments, and asks for them; times are milliseconds after ``start_ms``."""

    stored: Stored
    secret: str
    client: Client = field(default_factory=Client)
    start_ms: int = 0

    def __post_init__(self) -> None:
        self.start_ms = int(self.stored.service.clock.now_ms) // 60_000 * 60_000

    def write(
        self, stacks: Mapping[str, int], at: int = 0, tenant: str = "quarry", kind: str = CPU, **labels: str
    ) -> str:
        """Write a profile of folded stacks in a segment of its own; return the object's key."""
        name, sample_type, unit, period_type, period_unit = kind.split(":")
        builder = ProfileBuilder([(sample_type, unit)], period_type=(period_type, period_unit), period=10**7)
        for stack, value in stacks.items():
            frames = [Frame(function, f"{function}.py", 1, 2) for function in reversed(stack.split(";"))]
            builder.add(frames, [value])
        time_ms = self.start_ms + at
        segment = SegmentBuilder(1, created_by="tests")
        named = {"__name__": name, "service_name": "web", **labels}
        segment.add(tenant, named, builder.profile(time_ns=time_ms * 10**6, duration_ns=10**9))
        data, meta = segment.build(ulids.make(time_ms, random.randbytes(ulids.ENTROPY_BYTES)))
        assert self.stored.service.add(meta, any_age=True).accepted == (meta.id,)
        return put_segment(self.stored.store, data, meta).key

    def range(self) -> dict[str, int]:
        """Return the minute from ``start_ms`` on as the fields of a request."""
        return {"start": self.start_ms, "end": self.start_ms + 60_000}

    def post(self, method: str, body: bytes, kind: str = "application/proto", **headers: str) -> HttpResponse:
        headers = {"Authorization": f"Bearer {self.secret}", **headers}
        path = f"/querier.v1.QuerierService/{method}"
        return self.client.post(path, data=body, content_type=kind, CONTENT_TYPE=kind, headers=headers)  # type: ignore[return-value]

    def ask(self, method: str, request: Message, kind: type[Answer], **headers: str) -> Answer:
        """Ask in protobuf and in JSON; both say the same."""
        response = self.post(method, request.SerializeToString(), **headers)
        assert response.status_code == 200, response.content
        text = self.post(method, json_format.MessageToJson(request).encode(), "application/json", **headers)
        assert json_format.Parse(text.content, kind()) == kind.FromString(response.content)
        return kind.FromString(response.content)

    def stacks(self, **fields: Any) -> querier_pb2.SelectMergeStacktracesResponse:
        request = self.stack_request(**fields)
        return self.ask("SelectMergeStacktraces", request, querier_pb2.SelectMergeStacktracesResponse)

    def stack_request(self, **fields: Any) -> querier_pb2.SelectMergeStacktracesRequest:
        """Return the question about everything of the minute, except what ``fields`` say."""
        every = {"profile_typeID": CPU, "label_selector": "{}", **self.range(), **fields}
        return querier_pb2.SelectMergeStacktracesRequest(**every)

    def get(self, path: str, **query: Any) -> HttpResponse:
        headers = {"Authorization": f"Bearer {self.secret}"}
        return self.client.get(f"/pyroscope/{path}", query, headers=headers)  # type: ignore[return-value]


@pytest.fixture
def viewer(stored: Stored, credential: Callable[..., str]) -> Viewer:  # noqa: F811
    return Viewer(stored, credential("quarry", scopes=(SCOPE_QUERY,)))
