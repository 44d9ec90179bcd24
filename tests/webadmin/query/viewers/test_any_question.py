"""For any profiles and any question, over the wire: the answer is that of what was pushed, whatever happens meanwhile.

Before, while and after blocks are merged and what was merged is deleted; profiles that came twice count once; what
delete requests name is not shown, whether a merge has left it out already or not. Requests are handwritten.
"""

from __future__ import annotations

import io
import json
import random
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.management import call_command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core import ulids
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.profile_block.selectors import Matcher, MatchOperator
from engine.formats.proto import pprof_pb2, querier_pb2
from engine.ingest.segments.segment import SegmentBuilder
from engine.query.execution import QueryRun
from tests.engine.query.naive import matches
from tests.segments import put_segment
from tests.webadmin.lanes.profiles.test_delete_requests import delete
from tests.webadmin.query.stored import Stored
from tests.webadmin.query.viewers.conftest import CPU, Viewer
from webadmin.base.access.scopes import SCOPE_QUERY
from webadmin.query import questions

SAMPLES = "process_cpu:samples:count:cpu:nanoseconds"
STACKS = ("main", "main;run", "main;run;run", "main;größe", "idle")
NAMES = ("service_name", "region", "host")
FULL = 20
"""Segments that are always there beside those of the example: so many make a merge due."""

Stacks = Counter[str]


@dataclass(frozen=True)
class Pushed:
    """A profile that was pushed ``copies`` times, each time into another segment."""

    labels: tuple[tuple[str, str], ...]
    at_ms: int
    stacks: tuple[tuple[str, int], ...]
    copies: int = 1

    def label(self, name: str) -> str:
        return dict(self.labels).get(name, "")


@dataclass(frozen=True)
class Asked:
    """A question: a selector, a range after the viewer's start (inclusive), a step."""

    matchers: tuple[Matcher, ...]
    start: int
    end: int
    step: int
    group_by: tuple[str, ...]

    @property
    def selector(self) -> str:
        return "{" + ",".join(map(str, self.matchers)) + "}"


@dataclass(frozen=True)
class Deleted:
    """A delete request; times are after the viewer's start, the second outside."""

    service: str
    matchers: tuple[Matcher, ...]
    from_ms: int | None
    until_ms: int | None

    def hides(self, profile: Pushed) -> bool:
        return (
            self.service in ("", profile.label("service_name"))
            and (self.from_ms is None or profile.at_ms >= self.from_ms)
            and (self.until_ms is None or profile.at_ms < self.until_ms)
            and all(_is_matched(profile, one) for one in self.matchers)
        )


PUSHED = st.builds(
    lambda service, extra, at_ms, stacks, copies: Pushed(
        (("service_name", service), *sorted(extra.items())), at_ms, tuple(sorted(stacks.items())), copies
    ),
    st.sampled_from(["api", "web"]),
    st.fixed_dictionaries({}, optional={"region": st.sampled_from(["eu", "us"]), "host": st.sampled_from("ab")}),
    st.integers(0, 9),
    st.dictionaries(st.sampled_from(STACKS), st.integers(1, 9), min_size=1, max_size=3),
    st.integers(1, 3),
)
MATCHERS = st.one_of(
    st.builds(
        Matcher,
        st.sampled_from(NAMES),
        st.sampled_from([MatchOperator.EQUAL, MatchOperator.NOT_EQUAL]),
        st.sampled_from(["", "eu", "a", "api"]),
    ),
    st.builds(
        Matcher,
        st.sampled_from(NAMES),
        st.sampled_from([MatchOperator.MATCHES, MatchOperator.MATCHES_NOT]),
        st.sampled_from(["", ".+", "e.*", "(api|us)"]),
    ),
)
ASKED = st.builds(
    lambda matchers, times, step, group_by: Asked(tuple(matchers), min(times), max(times), step, tuple(group_by)),
    st.lists(MATCHERS, max_size=3),
    st.tuples(st.integers(0, 10), st.integers(0, 10)),
    st.integers(1, 4),
    st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
)
DELETED = st.builds(
    lambda service, matchers, times: (
        Deleted(service, tuple(matchers), *sorted(times, key=lambda time: time or 0))
        if None not in times
        else Deleted(service, tuple(matchers), *times)
    ),
    st.sampled_from(["", "api"]),
    st.lists(MATCHERS, max_size=1),
    st.one_of(
        st.just((None, None)),
        st.tuples(st.none(), st.integers(1, 9)),
        st.tuples(st.integers(1, 9), st.none()),
        st.tuples(st.integers(0, 4), st.integers(5, 9)),
    ),
)


class Told:
    """What the plainest evaluation says of the profiles that are shown."""

    def __init__(self, viewer: Viewer, profiles: Sequence[Pushed], deleted: Sequence[Deleted]) -> None:
        self._start_ms = viewer.start_ms
        shown = {(one.labels, one.at_ms, one.stacks): one for one in profiles}
        self._shown = [one for one in shown.values() if not any(request.hides(one) for request in deleted)]

    def _answering(self, asked: Asked, start: int) -> Iterator[Pushed]:
        for profile in self._shown:
            if start <= profile.at_ms <= asked.end and all(_is_matched(profile, one) for one in asked.matchers):
                yield profile

    def stacks(self, asked: Asked) -> Stacks:
        found: Stacks = Counter()
        for profile in self._answering(asked, asked.start):
            found.update(dict(profile.stacks))
        return found

    def values(self, asked: Asked, name: str) -> list[str]:
        return sorted(
            {value for one in self._answering(asked, asked.start) for key, value in one.labels if key == name}
        )

    def series(self, asked: Asked) -> set[tuple[tuple[str, str], ...]]:
        return {tuple(sorted(one.labels)) for one in self._answering(asked, asked.start)}

    def points(self, asked: Asked) -> dict[tuple[str, ...], dict[int, float]]:
        found: defaultdict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
        for point in range(asked.start, asked.end + 1, asked.step):
            for one in self._answering(asked, asked.start - asked.step + 1):
                if point - asked.step < one.at_ms <= point:
                    group = tuple(one.label(name) for name in asked.group_by)
                    found[group][point] = found[group].get(point, 0) + sum(value for _, value in one.stacks)
        return dict(found)


def _is_matched(profile: Pushed, condition: Matcher) -> bool:
    return matches(dict(profile.labels), condition)


def write(viewer: Viewer, tenant: str, profiles: Sequence[Pushed], chance: random.Random) -> None:
    """Write every profile into as many segments as it was pushed, among segments that no query matches."""
    segments: list[list[Pushed]] = [[] for _ in range(FULL)]
    for profile in profiles:
        for own in chance.sample(segments, profile.copies):
            own.append(profile)
    for own in segments:
        builder = SegmentBuilder(1, created_by="tests")
        for profile in [*own, Pushed((("service_name", "else"),), 60_000, (("idle", 1),))]:
            made = ProfileBuilder(
                [("cpu", "nanoseconds"), ("samples", "count")], period_type=("cpu", "nanoseconds"), period=1
            )
            for stack, value in profile.stacks:
                made.add([Frame(name, "f.py", 1, 1) for name in reversed(stack.split(";"))], [value, 3 * value])
            at_ns = (viewer.start_ms + profile.at_ms) * 10**6
            builder.add(
                tenant, {"__name__": "process_cpu", **dict(profile.labels)}, made.profile(time_ns=at_ns, duration_ns=1)
            )
        data, meta = builder.build(ulids.make(viewer.start_ms, secrets.token_bytes(ulids.ENTROPY_BYTES)))
        put_segment(viewer.stored.store, data, meta)
        assert viewer.stored.service.add(meta, any_age=True).accepted == (meta.id,)


class Wire:
    """Asks for one question in every way there is."""

    def __init__(self, viewer: Viewer, tenant: str, asked: Asked) -> None:
        self._viewer = viewer
        self._tenant = tenant
        self._asked = asked
        self._times = {"start": viewer.start_ms + asked.start, "end": viewer.start_ms + asked.end}
        self._typed = {"profile_typeID": CPU, "label_selector": asked.selector, **self._times}
        self._listed = {"matchers": [asked.selector, f'{{__profile_type__="{CPU}"}}'], **self._times}

    def stacks(self) -> Stacks:
        request = querier_pb2.SelectMergeProfileRequest(**self._typed)
        profile = self._ask("SelectMergeProfile", request, pprof_pb2.Profile)
        names = {one.id: profile.string_table[one.name] for one in profile.function}
        places = {place.id: [names[line.function_id] for line in place.line] for place in profile.location}
        found: Stacks = Counter()
        for sample in profile.sample:
            frames = [name for place in sample.location_id for name in places[place]]
            found[";".join(reversed(frames))] += sample.value[0]
        return found

    def total(self) -> int:
        request = querier_pb2.SelectMergeStacktracesRequest(**self._typed)
        answer = self._ask("SelectMergeStacktraces", request, querier_pb2.SelectMergeStacktracesResponse)
        return int(answer.flamegraph.total)

    def points(self) -> dict[tuple[str, ...], dict[int, float]]:
        group_by = self._asked.group_by
        request = querier_pb2.SelectSeriesRequest(step=self._asked.step / 1000, group_by=group_by, **self._typed)
        answer = self._ask("SelectSeries", request, querier_pb2.SelectSeriesResponse)
        found = {}
        for one in answer.series:
            labels = {label.name: label.value for label in one.labels}
            points = {point.timestamp - self._viewer.start_ms: point.value for point in one.points}
            found[tuple(labels.get(name, "") for name in group_by)] = points
        return found

    def series(self) -> set[tuple[tuple[str, str], ...]]:
        request = querier_pb2.SeriesRequest(label_names=NAMES, **self._listed)
        answer = self._ask("Series", request, querier_pb2.SeriesResponse)
        return {tuple((label.name, label.value) for label in one.labels) for one in answer.labels_set}

    def values(self, name: str) -> list[str]:
        request = querier_pb2.LabelValuesRequest(name=name, **self._listed)
        return list(self._ask("LabelValues", request, querier_pb2.LabelValuesResponse).names)

    def types(self) -> list[str]:
        request = querier_pb2.ProfileTypesRequest(**self._times)
        answer = self._ask("ProfileTypes", request, querier_pb2.ProfileTypesResponse)
        return [one.ID for one in answer.profile_types]

    def on_the_command_line(self) -> int:
        times = ("--from", str(self._times["start"]), "--until", str(self._times["end"]))
        out = io.StringIO()
        asked = ("--tenant", self._tenant, "--selector", self._asked.selector, "--type", CPU, "--json", *times)
        call_command("query", "top", *asked, stdout=out)
        return int(json.loads(out.getvalue())["total"])

    def _ask(self, method: str, request: Any, kind: Any) -> Any:
        answer = self._viewer.post(method, request.SerializeToString())
        assert answer.status_code == 200, answer.content
        assert "Lithify-Partial" not in answer
        return kind.FromString(answer.content)


def check(viewer: Viewer, tenant: str, told: Told, asked: Asked) -> None:
    wire, stacks = Wire(viewer, tenant, asked), told.stacks(asked)
    assert wire.stacks() == stacks
    assert wire.total() == wire.on_the_command_line() == stacks.total()
    assert wire.points() == told.points(asked)
    assert wire.series() == told.series(asked)
    assert {name: wire.values(name) for name in NAMES} == {name: told.values(asked, name) for name in NAMES}
    everything = Asked((), asked.start, asked.end, 1, ())
    assert wire.types() == ([CPU, SAMPLES] if told.stacks(everything) else [])


@contextmanager
def meanwhile(happen: Callable[[], None], step: int) -> Iterator[list[int]]:
    """Let something happen once inside: after an answer's look at the index (0), or before its n-th merge of results.

    Yields a list that has a number for each time it happened.
    """
    happened: list[int] = []
    left = [step]
    phase = QueryRun.phase

    @contextmanager
    def counted(run: QueryRun, name: str) -> Iterator[None]:
        with phase(run, name):
            yield
        if name in ("index", "merge") and not happened:
            if left[0] == 0:
                happened.append(1)
                happen()
            left[0] -= 1

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(QueryRun, "phase", counted)
        yield happened


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    profiles=st.lists(PUSHED, min_size=1, max_size=10),
    asked=ASKED,
    deleted=st.lists(DELETED, max_size=2),
    deletes_first=st.booleans(),
    raced=st.sampled_from(["stacks", "points", "series"]),
    step=st.integers(0, 6),
    seed=st.integers(0, 1 << 30),
)
def test_an_answer_is_that_of_what_was_pushed(
    stored: Stored,
    credential: Callable[..., str],
    profiles: list[Pushed],
    asked: Asked,
    deleted: list[Deleted],
    deletes_first: bool,
    raced: str,
    step: int,
    seed: int,
) -> None:
    tenant = f"tenant-{secrets.token_hex(8)}"
    viewer = Viewer(stored, credential(tenant, scopes=(SCOPE_QUERY,)))

    def request_deletion() -> None:
        for one in deleted:
            times = {
                name: None if time is None else viewer.start_ms + time
                for name, time in (("from_ms", one.from_ms), ("until_ms", one.until_ms))
            }
            selector = "{" + ",".join(map(str, one.matchers)) + "}" if one.matchers else ""
            delete(tenant=tenant, service=one.service, selector=selector, **times)

    def merge_and_delete() -> None:
        assert stored.compact() > 0
        assert stored.delete_replaced() > 0

    write(viewer, tenant, profiles, random.Random(seed))
    told = Told(viewer, profiles, [])
    check(viewer, tenant, told, asked)
    if deletes_first:
        request_deletion()
        told = Told(viewer, profiles, deleted)
        check(viewer, tenant, told, asked)
    questions.query_engine().cache._entries.clear()
    with meanwhile(merge_and_delete, step) as happened:
        assert getattr(Wire(viewer, tenant, asked), raced)() == getattr(told, raced)(asked)
    if not happened:
        merge_and_delete()
    check(viewer, tenant, told, asked)
    if not deletes_first:
        request_deletion()
        check(viewer, tenant, Told(viewer, profiles, deleted), asked)
