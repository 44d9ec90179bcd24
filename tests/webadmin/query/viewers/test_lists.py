"""Types, labels and series over the wire: what menus of viewers are filled with. All requests are handwritten."""

from __future__ import annotations

from typing import Any

import pytest

from engine.formats.proto import querier_pb2
from tests.webadmin.query.viewers.conftest import CPU, EXAMPLE, Viewer
from webadmin.query.viewers import viewing

ALL_NAMES = {"Accept": "*/*; allow-utf8-labelnames=true"}


def types(viewer: Viewer, **times: int) -> list[querier_pb2.ProfileType]:
    request = querier_pb2.ProfileTypesRequest(**times)
    return list(viewer.ask("ProfileTypes", request, querier_pb2.ProfileTypesResponse).profile_types)


def series(viewer: Viewer, *names: str, **headers: str) -> list[dict[str, str]]:
    request = querier_pb2.SeriesRequest(matchers=["{}"], label_names=names, **viewer.range())
    answer = viewer.ask("Series", request, querier_pb2.SeriesResponse, **headers)
    return [{label.name: label.value for label in one.labels} for one in answer.labels_set]


def test_types_with_their_parts(viewer: Viewer) -> None:
    viewer.write(EXAMPLE)
    (found,) = types(viewer, **viewer.range())
    parts = (found.name, found.sample_type, found.sample_unit, found.period_type, found.period_unit)
    assert (found.ID, parts) == (CPU, tuple(CPU.split(":")))
    assert types(viewer, start=1, end=2) == []


def test_types_without_a_range_are_those_of_the_last_hour(viewer: Viewer, monkeypatch: Any) -> None:
    viewer.write(EXAMPLE)
    monkeypatch.setattr(viewing.time, "time_ns", lambda: (viewer.start_ms + 3_600_000) * 10**6)
    assert [one.ID for one in types(viewer)] == [CPU]
    monkeypatch.setattr(viewing.time, "time_ns", lambda: (viewer.start_ms + 3_600_001) * 10**6)
    assert types(viewer) == []


def test_names_are_sorted_and_odd_ones_are_for_clients_that_can_show_them(viewer: Viewer) -> None:
    viewer.write(EXAMPLE, region="eu", **{"k8s.pod": "a"})
    request = querier_pb2.LabelNamesRequest(matchers=["{}"], **viewer.range())
    plain = list(viewer.ask("LabelNames", request, querier_pb2.LabelNamesResponse).names)
    assert plain == sorted(plain)
    assert {"__profile_type__", "__name__", "region", "service_name"} <= set(plain)
    every = viewer.ask("LabelNames", request, querier_pb2.LabelNamesResponse, **ALL_NAMES).names
    assert set(every) - set(plain) == {"k8s.pod"}


def test_values_of_a_label_among_the_matching_series(viewer: Viewer) -> None:
    for place, region in enumerate(("us", "eu", "eu")):
        viewer.write(EXAMPLE, at=place, region=region, host=f"host-{place}")

    def values(name: str, *matchers: str) -> list[str]:
        request = querier_pb2.LabelValuesRequest(name=name, matchers=matchers, **viewer.range())
        return list(viewer.ask("LabelValues", request, querier_pb2.LabelValuesResponse).names)

    assert values("region") == values("region", "{}") == ["eu", "us"]
    assert values("host", '{region="eu"}') == ["host-1", "host-2"]
    assert values("host", '{region="eu"}', '{host!="host-1"}') == ["host-2"], "all selectors must hold"
    assert values("nowhere") == []
    assert values("__profile_type__") == [CPU]


def test_series_with_all_labels_and_with_some(viewer: Viewer) -> None:
    viewer.write(EXAMPLE, at=0, service_name="b", region="eu")
    viewer.write(EXAMPLE, at=1, service_name="a", region="eu", **{"k8s.pod": "x"})
    assert series(viewer, "service_name", "__profile_type__") == [
        {"__profile_type__": CPU, "service_name": "a"},
        {"__profile_type__": CPU, "service_name": "b"},
    ]
    assert series(viewer, "region") == [{"region": "eu"}]
    assert series(viewer, "nobody") == [{}]
    assert series(viewer, "k8s.pod", **ALL_NAMES) == [{}, {"k8s.pod": "x"}]
    assert series(viewer, "k8s.pod") == [{}]
    (first, second) = series(viewer)
    assert list(first) == sorted(first)
    assert {first["service_name"], second["service_name"]} == {"a", "b"}


def points(viewer: Viewer, **fields: Any) -> list[tuple[dict[str, str], list[tuple[int, float]]]]:
    every = {"profile_typeID": CPU, "label_selector": "{}", **viewer.range(), "step": 0.001, **fields}
    answer = viewer.ask("SelectSeries", querier_pb2.SelectSeriesRequest(**every), querier_pb2.SelectSeriesResponse)
    return [
        (
            {label.name: label.value for label in one.labels},
            [(point.timestamp - viewer.start_ms, point.value) for point in one.points],
        )
        for one in answer.series
    ]


@pytest.mark.row("profile-api-48")
def test_points_of_a_series_are_sums(viewer: Viewer) -> None:
    for host, (at, value) in enumerate([(1, 1), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]):
        viewer.write({"a": value}, at=at, host=str(host))
    start = viewer.start_ms + 1
    assert points(viewer, start=start, end=start + 4) == [({}, [(1, 2), (2, 2), (3, 3), (4, 4), (5, 5)])]


@pytest.mark.row("profile-api-49")
def test_a_point_covers_the_step_that_ends_with_it_and_empty_steps_have_none(viewer: Viewer) -> None:
    for at, value in ((947, 100), (987, 300), (1847, 200)):
        viewer.write({"a": value}, at=at)
    start = viewer.start_ms + 1000
    assert points(viewer, start=start, end=start + 2000, step=1) == [({}, [(1000, 400), (2000, 200)])]


def test_average_is_over_the_profiles_of_a_step(viewer: Viewer) -> None:
    viewer.write({"a": 1}, at=1, host="a")
    viewer.write({"a": 2}, at=1, host="b")
    average = querier_pb2.TIME_SERIES_AGGREGATION_TYPE_AVERAGE
    assert points(viewer, aggregation=average) == [({}, [(1, 1.5)])]


@pytest.mark.row("profile-api-50")
def test_series_are_sorted_by_total_then_labels(viewer: Viewer) -> None:
    for at, (host, value) in enumerate([("d", 2), ("a", 3), ("c", 2), ("b", 4)]):
        viewer.write({"a": value}, at=at, host=host)
    assert [labels["host"] for labels, _ in points(viewer, group_by=["host"])] == ["b", "a", "c", "d"]
    assert [labels["host"] for labels, _ in points(viewer, group_by=["host"], limit=2)] == ["b", "a"]
    assert [labels for labels, _ in points(viewer, group_by=["zone"])] == [{}], "labels that are not there are left out"
