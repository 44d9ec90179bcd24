"""Data for the page's script: graphs, parts, searches, tables, sandwiches, timelines, exports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.formats.pprof.pprof import parse_profile
from engine.query.flame.frame_paths import FACTOR, ROOT_ID, path_ids
from engine.query.flame.pprof_stacks import profile_tree
from engine.query.flame.tree import FlameTree
from tests.webadmin.query.flame_page.conftest import Visitor
from tests.webadmin.query.viewers.conftest import CPU, EXAMPLE, OTHER_EXAMPLE
from webadmin.query.flame_page import answers
from webadmin.query.flame_page.address import flame_address


def read(graph: dict[str, Any], side: int = 0) -> dict[str, tuple[int, int]]:
    """Return own value and total of every node by its path."""
    paths = [""]
    for parent, ref in zip(graph["parents"][1:], graph["refs"][1:], strict=True):
        paths.append(f"{paths[parent]};{graph['names'][ref]}".lstrip(";"))
    own, totals = graph["own"][side], graph["totals"][side]
    return {path: (own[place], totals[place]) for place, path in enumerate(paths) if totals[place]}


def place(*names: str) -> str:
    """Return the id of a place as a link has it."""
    tree = FlameTree()
    tree.add_stack([name.encode() for name in names], 1)
    return f"{path_ids(tree.nodes()).tolist()[-1]:016x}"


def test_a_graph_with_its_table_and_cost(visitor: Visitor) -> None:
    visitor.viewer.write(EXAMPLE)
    visitor.viewer.write(EXAMPLE, at=1_000, service_name="other-service")
    found = visitor.ask("graph")
    assert read(found["graph"]) == {
        "": (0, 100),
        "gc": (5, 5),
        "main": (0, 95),
        "main;idle": (10, 10),
        "main;work": (5, 85),
        "main;work;parse": (30, 30),
        "main;work;render": (50, 50),
    }
    assert found["totals"] == [100]
    assert found["graph"]["cut"] == []
    assert (found["focus"], found["focus_lost"], found["search"]) == (None, False, None)
    assert found["top"]["functions"] == 6
    assert found["top"]["rows"][:2] == [["render", 50, 50], ["parse", 30, 30]]
    assert (found["unit"], found["sample_type"]) == ("nanoseconds", "cpu")
    assert found["ranges"] == [{"start_ms": visitor.viewer.start_ms, "end_ms": visitor.viewer.start_ms + 60_000}]
    report = found["report"]
    assert (report["objects_opened"], report["damage"]) == (1, [])
    assert report["bytes_read"] > 0
    assert report["phases_ms"].keys() == {"index", "open", "series", "rows", "symbols", "merge"}


def test_a_cut_graph_keeps_its_totals_and_a_part_is_loaded_on_focus(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "NODES_SHOWN", 2)
    visitor.viewer.write(EXAMPLE)
    whole = visitor.ask("graph", search="parse")
    assert read(whole["graph"]) == {"": (0, 100), "other": (5, 5), "main": (0, 95), "main;other": (10, 10), "main;work": (5, 85), "main;work;other": (80, 80)}  # fmt: skip  # noqa: E501
    assert [whole["graph"]["names"][whole["graph"]["refs"][node]] for node in whole["graph"]["cut"]] == ["other"] * 3
    # What is not drawn is found all the same.
    assert whole["search"] == {"text": "parse", "functions": 1, "totals": [30]}
    assert whole["top"] == {"functions": 1, "rows": [["parse", 30, 30]]}
    part = visitor.ask("graph", focus=place("main", "work", "render"))
    assert read(part["graph"]) == {"": (0, 50), "render": (50, 50)}
    assert part["focus"] == [
        {"name": "main", "totals": [95]},
        {"name": "work", "totals": [85]},
        {"name": "render", "totals": [50]},
    ]
    assert part["totals"] == [100]


def test_a_missing_focus_is_reported(visitor: Visitor) -> None:
    visitor.viewer.write(EXAMPLE)
    found = visitor.ask("graph", focus=f"{(ROOT_ID * FACTOR) % 2**64:016x}")
    assert (found["focus"], found["focus_lost"]) == (None, True)
    assert found["graph"]["totals"][0][0] == 100


def test_two_ranges_and_two_label_sets_are_compared(visitor: Visitor) -> None:
    visitor.viewer.write(EXAMPLE, region="eu")
    visitor.viewer.write(OTHER_EXAMPLE, at=30_000, region="us")
    start = visitor.viewer.start_ms
    by_time = {"until": start + 9_999, "right_from": start + 10_000, "right_until": start + 60_000}
    by_label = {"filter": "region = eu", "right_filter": "region =~ u."}
    for way in (by_time, by_label):
        found = visitor.ask("graph", compare="diff", search="parse", focus=place("main", "work"), **way)
        assert found["totals"] == [100, 100]
        assert read(found["graph"]) == {"": (0, 85), "work": (5, 85), "work;parse": (30, 30), "work;render": (50, 50)}
        assert read(found["graph"], 1) == {
            "": (0, 80),
            "work": (0, 80),
            "work;parse": (60, 60),
            "work;render": (20, 20),
        }
        assert found["search"]["totals"] == [30, 60]
        assert found["top"]["rows"] == [["parse", 30, 30, 60, 60]]
        only = visitor.ask("graph", side="right", **way)
        assert read(only["graph"])["main;net"] == (15, 15)
    assert visitor.ask("graph", compare="diff", **by_label)["report"]["objects_opened"] == 2


def test_a_part_that_one_side_lacks_is_nothing_there(visitor: Visitor) -> None:
    visitor.viewer.write(EXAMPLE, region="eu")
    visitor.viewer.write(OTHER_EXAMPLE, at=30_000, region="us")
    sides = {"filter": "region = eu", "right_filter": "region = us"}
    found = visitor.ask("graph", compare="diff", focus=place("main", "net"), **sides)
    assert found["focus"] == [{"name": "main", "totals": [0, 95]}, {"name": "net", "totals": [0, 15]}]
    assert found["graph"]["totals"] == [[0, 0], [15, 15]]


def test_a_function_between_its_callers_and_what_it_calls(visitor: Visitor) -> None:
    visitor.viewer.write({"main;work;parse": 30, "init;work": 5, "main;idle": 65})
    found = visitor.ask("sandwich", function="work")
    assert (found["totals"], found["function_totals"]) == ([100], [35])
    assert read(found["callers"]) == {"": (0, 35), "work": (0, 35), "work;main": (30, 30), "work;init": (5, 5)}
    assert read(found["callees"]) == {"": (0, 35), "work": (5, 35), "work;parse": (30, 30)}
    assert visitor.ask("sandwich", function="nobody")["function_totals"] == [0]


def test_the_timeline_has_every_row_once(visitor: Visitor) -> None:
    for at in (0, 59_999, 60_000):
        visitor.viewer.write(EXAMPLE, at=at)
    found = visitor.ask("timeline")
    assert sum(value for _, value in found["bars"]) == visitor.ask("graph")["totals"][0] == 300
    assert found["bars"][0][0] == found["start_ms"] == visitor.viewer.start_ms
    assert all(at <= found["end_ms"] for at, _ in found["bars"])
    assert len(found["bars"]) == 2 or found["step_ms"] < 1_000


def test_a_range_of_a_single_moment_has_a_timeline(visitor: Visitor) -> None:
    visitor.viewer.write(EXAMPLE)
    found = visitor.ask("timeline", until=visitor.viewer.start_ms)
    assert found["bars"] == [[visitor.viewer.start_ms, 100.0]]


def test_labels_and_what_a_tenant_has(visitor: Visitor) -> None:
    key = visitor.viewer.write(EXAMPLE, region="eu")
    visitor.viewer.write(EXAMPLE, at=30_000, service_name="shop")
    assert "region" in visitor.ask("labels")["values"]
    assert not {"service_name", "__profile_type__"} & set(visitor.ask("labels")["values"])
    assert visitor.ask("labels", name="region")["values"] == ["eu"]
    assert visitor.ask("labels", name="region", filter="region != eu")["values"] == []
    start = visitor.viewer.start_ms
    assert visitor.ask("known") == {
        "tenant": "quarry",
        "services": [
            {"name": "shop", "oldest_ms": start + 30_000, "newest_ms": start + 30_000, "types": [CPU]},
            {"name": "web", "oldest_ms": start, "newest_ms": start, "types": [CPU]},
        ],
    }
    assert key


def test_an_empty_range_is_an_empty_answer(visitor: Visitor) -> None:
    visitor.viewer.write(EXAMPLE)
    found = visitor.ask("graph", service="nobody")
    assert (found["totals"], found["top"]["rows"], found["graph"]["parents"]) == ([0], [], [-1])
    assert visitor.ask("timeline", service="nobody")["bars"] == []
    assert visitor.get("export", service="nobody", form="pprof").json()["message"].startswith("there is nothing")


def test_a_damaged_block_is_left_out_and_named(visitor: Visitor) -> None:
    visitor.viewer.write(EXAMPLE)
    key = visitor.viewer.write(OTHER_EXAMPLE, at=1_000)
    visitor.viewer.stored.store.delete(key)
    found = visitor.ask("graph")
    assert found["totals"] == [100]
    assert [damage["object"] for damage in found["report"]["damage"]] == [key]


def test_exports(visitor: Visitor) -> None:
    visitor.viewer.write(EXAMPLE)
    packed = visitor.get("export", form="pprof")
    assert packed["Content-Disposition"] == 'attachment; filename="web.cpu.pb.gz"'
    assert packed["Lithify-Objects-Opened"] == "1"
    tree = profile_tree(parse_profile(packed.content), 0)
    assert read(answers.columns_json([tree])) == read(visitor.ask("graph")["graph"])
    folded = visitor.get("export", form="folded").content.decode().splitlines()
    assert sorted(folded) == sorted(f"{stack} {value}" for stack, value in EXAMPLE.items())
    levels = json.loads(visitor.get("export", form="levels").content)
    assert levels["flamebearer"]["numTicks"] == 100
    double = json.loads(visitor.get("export", form="levels", compare="diff").content)
    assert double["metadata"]["format"] == "double"


@pytest.mark.parametrize("way", ["graph", "sandwich", "folded", "levels"])
def test_a_file_is_shown_as_what_is_stored_and_not_kept(visitor: Visitor, way: str) -> None:
    visitor.viewer.write(EXAMPLE)
    data = visitor.get("export", form="pprof").content
    before = sorted(entry.key for entry in visitor.viewer.stored.store.list(""))
    found = visitor.open(data, show=way, function="work", search="parse")
    assert found.status_code == 200, found.content
    if way == "graph":
        told = found.json()
        assert read(told["graph"]) == read(visitor.ask("graph")["graph"])
        assert told["sample_types"] == [{"type": "cpu", "unit": "nanoseconds"}]
        assert told["search"]["totals"] == [30]
    elif way == "sandwich":
        assert found.json()["function_totals"] == [85]
    elif way == "folded":
        assert len(found.content.splitlines()) == len(EXAMPLE)
    else:
        assert found.json()["flamebearer"]["numTicks"] == 100
    assert sorted(entry.key for entry in visitor.viewer.stored.store.list("")) == before


def test_the_table_has_the_largest_of_both_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "ROWS_SHOWN", 4)
    tree = FlameTree()
    for number in range(1, 10):
        tree.add_stack([b"root", b"middle", b"leaf%d" % number], number)
    found = answers.top_json([tree])
    assert found["functions"] == 11
    assert [row[0] for row in found["rows"]] == ["leaf9", "leaf8", "middle", "root"]


def test_the_address_of_the_page() -> None:
    assert flame_address("a b", "shop", CPU, 1, 2, base="http://host/").startswith(
        "http://host/admin/flame-graph/?tenant=a+b&service=shop&type=process_cpu%3Acpu"
    )
    assert flame_address("acme") == "/admin/flame-graph/?tenant=acme"
