"""What a viewer is never shown, and malformed bodies."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.formats.proto import querier_pb2
from tests.webadmin.query.viewers.conftest import CPU, Viewer
from webadmin.base.access.scopes import SCOPE_QUERY
from webadmin.query.viewers.querier_api import METHODS

SECRETS = (b"hidden_frame", b"hidden-service", b"hidden-host", b"hidden_label")
REFUSALS = {400, 429, 501}


def requests(viewer: Viewer) -> dict[str, bytes]:
    """Return a request of each method that asks for everything there is in the minute."""
    times = viewer.range()
    of_type = {"profile_typeID": CPU, "label_selector": "{}", **times}
    stack = querier_pb2.SelectMergeStacktracesRequest(**of_type)
    found = {
        "ProfileTypes": querier_pb2.ProfileTypesRequest(**times),
        "LabelNames": querier_pb2.LabelNamesRequest(**times),
        "LabelValues": querier_pb2.LabelValuesRequest(name="service_name", **times),
        "Series": querier_pb2.SeriesRequest(**times),
        "SelectSeries": querier_pb2.SelectSeriesRequest(group_by=["host"], step=15, **of_type),
        "SelectMergeStacktraces": stack,
        "SelectMergeProfile": querier_pb2.SelectMergeProfileRequest(**of_type),
        "SelectMergeSpanProfile": querier_pb2.SelectMergeSpanProfileRequest(**of_type),
        "Diff": querier_pb2.DiffRequest(left=stack, right=stack),
    }
    assert found.keys() == METHODS.keys(), "say what a new method is asked"
    return {name: message.SerializeToString() for name, message in found.items()}


def test_no_answer_has_anything_of_another_tenant(viewer: Viewer, credential: Callable[..., str]) -> None:
    labels = {"service_name": "hidden-service", "host": "hidden-host", "hidden_label": "1"}
    viewer.write({"hidden_frame": 1}, at=1000, **labels)
    river = Viewer(viewer.stored, credential("river", scopes=(SCOPE_QUERY,)))
    times = {"from": viewer.start_ms, "until": viewer.start_ms + 60_000}
    sides = {f"{side}{name.title()}": value for side in ("left", "right") for name, value in times.items()}
    gets = {
        "render": {"query": CPU + "{}", "groupBy": "host", **times},
        "render-diff": {"leftQuery": CPU + "{}", "rightQuery": CPU + "{}", **sides},
        "label-values": {"label": "host", **times},
        "labels": times,
    }
    for who, is_shown in ((viewer, True), (river, False)):
        posted = {name: who.post(name, body) for name, body in requests(viewer).items()}
        got = {path: who.get(path, **query) for path, query in gets.items()}
        for name, answer in {**posted, **got}.items():
            assert answer.status_code == 200, name
            says = (
                CPU.encode() in answer.content
                if name == "ProfileTypes"
                else any(secret in answer.content for secret in SECRETS)
            )
            assert says == is_shown, name


@pytest.mark.parametrize("method", sorted(METHODS))
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_body_is_answered_or_refused(viewer: Viewer, method: str, data: st.DataObject) -> None:
    whole = requests(viewer)[method]
    place = data.draw(st.integers(0, len(whole)))
    body = whole[:place] + data.draw(st.binary(max_size=8)) + whole[place + data.draw(st.integers(0, 4)) :]
    assert viewer.post(method, body).status_code in REFUSALS | {200}
    text = data.draw(st.text(max_size=30))
    assert viewer.post(method, text.encode("utf-8", "surrogatepass"), "application/json").status_code in REFUSALS | {
        200
    }


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(selector=st.text(max_size=40), start=st.integers(-(1 << 63), (1 << 63) - 1), step=st.floats())
def test_any_selector_range_and_step_is_answered_or_refused(
    viewer: Viewer, selector: str, start: int, step: float
) -> None:
    selector = selector.encode("utf-8", "replace").decode()
    for end in (start, min(start + 1000, (1 << 63) - 1)):
        request = querier_pb2.SelectSeriesRequest(
            profile_typeID=CPU, label_selector="{" + selector + "}", start=start, end=end, step=step
        )
        assert viewer.post("SelectSeries", request.SerializeToString()).status_code in REFUSALS | {200}
    times = {"from": selector, "until": str(start)}
    assert viewer.get("render", query=CPU + "{" + selector + "}", **times).status_code in REFUSALS | {200}
