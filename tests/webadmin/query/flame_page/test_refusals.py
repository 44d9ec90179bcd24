"""Access to the page's data, and errors for invalid queries and files."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.query.errors import QueryBusy, QueryTimedOut, QueryTooLarge
from engine.query.flame.tree import FlameTree
from tests.webadmin.query.flame_page.conftest import Visitor
from tests.webadmin.query.viewers.conftest import EXAMPLE
from webadmin.query.flame_page import files
from webadmin.query.flame_page.urls import urlpatterns
from webadmin.query.flame_page.views import WHAT_NEXT
from webadmin.query.questions import query_engine

GETS = ("known", "labels", "timeline", "graph", "sandwich", "export")
TREE = FlameTree()
SECRETS = (b"hidden_frame", b"hidden-service", b"hidden-host", b"hidden_label")


@pytest.mark.parametrize("what", GETS)
def test_requests_without_a_session_get_401(visitor: Visitor, what: str) -> None:
    visitor.viewer.write(EXAMPLE)
    found = Visitor(visitor.viewer, Client()).get(what)
    assert found.status_code == 401
    assert found.json()["code"] == "signed_out"
    assert Client().get("/admin/flame-graph/").status_code == 302


def test_uploads_need_a_session_and_a_csrf_token(visitor: Visitor) -> None:
    assert Visitor(visitor.viewer, Client()).open(b"").status_code == 401
    strict = Visitor(visitor.viewer, Client(enforce_csrf_checks=True)).sign_in("tenant:quarry")
    assert strict.open(b"").status_code == 403


def test_every_address_of_the_page_is_tested_here() -> None:
    data = {str(one.pattern).removeprefix("data/") for one in urlpatterns}
    assert data == {"", "open-file", *GETS}


@pytest.mark.parametrize("what", GETS)
def test_other_tenants_are_not_visible(visitor: Visitor, visit: Callable[..., Visitor], what: str) -> None:
    labels = {"service_name": "hidden-service", "host": "hidden-host", "hidden_label": "1"}
    visitor.viewer.write({"hidden_frame": 1}, **labels)
    visitor.viewer.write({"seen": 1}, tenant="river", service_name="hidden-service")
    asked = {"service": "hidden-service", "form": "folded", "function": "hidden_frame", "name": None}
    member = visit("tenant:quarry", "tenant:brook", "oncall")
    stranger = visit("tenant:river", "quarry", "tenant:quar")
    assert visitor.get(what, **asked).status_code == member.get(what, **asked).status_code == 200
    assert any(secret in visitor.get(what, **asked).content for secret in SECRETS) or what == "timeline"
    refused = stranger.get(what, **asked)
    assert (refused.status_code, refused.json()["code"]) == (404, "no_such_tenant")
    # One that does not exist is answered alike.
    nowhere = stranger.get(what, **asked | {"tenant": "nowhere"})
    assert nowhere.content.replace(b"nowhere", b"quarry") == refused.content
    own = stranger.get(what, **asked | {"tenant": "river", "function": "seen"})
    assert own.status_code == 200
    assert not any(secret in own.content for secret in (b"hidden_frame", b"hidden-host", b"hidden_label"))


def test_the_page_lists_the_tenants_one_may_see(visitor: Visitor, visit: Callable[..., Visitor]) -> None:
    for tenant in ("quarry", "river"):
        visitor.viewer.write(EXAMPLE, tenant=tenant)
    for who, listed in (
        (visitor, ["quarry", "river"]),
        (visit("tenant:*"), ["quarry", "river"]),
        (visit("tenant:river"), ["river"]),
        (visit(), []),
    ):
        page = who.client.get("/admin/flame-graph/")
        assert page.status_code == 200
        assert page.context["setup"]["tenants"] == listed  # type: ignore[index]
    assert b"no tenant whose profiles you may see" in visit("other").client.get("/admin/flame-graph/").content


@pytest.mark.parametrize(
    ("query", "code", "says"),
    [
        ({"tenant": None}, "no_tenant", "no tenant"),
        ({"type": None}, "invalid_question", "no profile type"),
        ({"type": "cpu"}, "invalid_question", "profile-type selection"),
        ({"from": "yesterday"}, "invalid_question", "from is no time"),
        ({"until": "1e999"}, "invalid_question", "until is no time"),
        ({"from": "now", "until": "now-1h"}, "invalid_question", "after end time"),
        ({"from": "1", "until": "now"}, "invalid_question", "exceeds the limit"),
        ({"filter": "region"}, "invalid_selector", "not an operator"),
        ({"filter": "region ~ x"}, "invalid_selector", "not an operator"),
        ({"filter": "region =~ ("}, "invalid_selector", ""),
        ({"filter": '"open = 1'}, "invalid_selector", "quote"),
        ({"filter": ["a = 1"] * 51}, "invalid_question", "51 filters"),
        ({"filter": "a = " + "1" * 2_000}, "invalid_selector", "longer"),
        ({"focus": "up"}, "invalid_question", "16 hexadecimal"),
        ({"search": "x" * 2_001}, "invalid_question", "longer"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(map(str, value))[:40],
)
def test_a_question_without_sense_is_refused_with_what_to_do(
    visitor: Visitor, query: dict[str, str], code: str, says: str
) -> None:
    visitor.viewer.write(EXAMPLE)
    found = visitor.get("graph", **query)
    told = found.json()
    assert (found.status_code, told["code"]) == (400, code)
    assert says in told["message"]
    assert told["next"].endswith(".")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (QueryBusy(7), 503, "query_busy"),
        (QueryTimedOut(60), 504, "query_timed_out"),
        (QueryTooLarge("rows", 5), 429, "query_too_large"),
        (RuntimeError("a defect"), 500, "internal"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_rejected_query_has_a_retry_time(
    visitor: Visitor, error: Exception, status: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor.viewer.write(EXAMPLE)

    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("webadmin.query.viewers.viewing.query_stacks", fail)
    found = visitor.get("graph")
    assert (found.status_code, found.json()["code"]) == (status, code)
    assert found.json()["next"] == WHAT_NEXT[code]
    assert "defect" not in found.json()["message"]
    assert found.headers.get("Retry-After") == ("7" if status == 503 else None)


def test_the_memory_of_files_is_that_of_questions(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    visitor.viewer.write(EXAMPLE)
    data = visitor.get("export", form="pprof").content
    held: list[int] = []
    monkeypatch.setattr(files, "profile_tree", lambda *arguments: held.append(query_engine().memory.bytes_held) or TREE)
    assert visitor.open(data).status_code == 200
    assert held[0] >= files.MEMORY_PER_BYTE * len(gzip.decompress(data))
    assert query_engine().memory.bytes_held == 0


def test_forms_and_methods_there_are_not(visitor: Visitor) -> None:
    visitor.viewer.write(EXAMPLE)
    assert visitor.get("export", form="exe").json()["code"] == "invalid_question"
    assert visitor.get("export", form="folded", compare="diff").status_code == 400
    assert visitor.get("sandwich").json()["message"] == "no function is chosen"
    assert visitor.get("open-file").status_code == 405
    assert visitor.client.post("/admin/flame-graph/data/graph").status_code == 405


def test_a_label_with_an_odd_name_can_be_filtered(visitor: Visitor) -> None:
    visitor.viewer.write(EXAMPLE, **{"odd name": "a b = c"})
    assert visitor.ask("graph", filter='"odd name" = a b = c')["totals"] == [100]
    assert visitor.ask("graph", filter='"odd name" != a b = c')["totals"] == [0]


NO_PROFILES = {
    "nothing": b"",
    "text": b"hello",
    "broken gzip": b"\x1f\x8b broken",
    "text in gzip": gzip.compress(b"not a profile", mtime=0),
    "a bomb": gzip.compress(b"\0" * (32 << 20), mtime=0),
}


@pytest.mark.parametrize("what", NO_PROFILES)
def test_bytes_that_are_no_profile_are_refused_in_plain_words(visitor: Visitor, what: str) -> None:
    found = visitor.open(NO_PROFILES[what])
    assert (found.status_code, found.json()["code"]) == (400, "bad_file")
    assert found.json()["message"].startswith("this is no pprof file that can be read: ")
    assert found.json()["next"]


def test_a_file_that_is_too_large_is_refused(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILE_BYTES_MAX", 1 << 20)
    found = visitor.open(b"x" * ((1 << 20) + 1))
    assert (found.status_code, found.json()["code"]) == (400, "file_too_large")
    assert "1 MiB" in found.json()["message"]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(cut=st.integers(0, 2_000), put=st.binary(max_size=6), sample=st.text(max_size=3))
def test_a_damaged_file_never_fails_the_server(visitor: Visitor, cut: int, put: bytes, sample: str) -> None:
    if not hasattr(visitor, "good"):
        visitor.viewer.write(EXAMPLE)
        visitor.good = gzip.decompress(visitor.get("export", form="pprof").content)  # type: ignore[attr-defined]
    good: bytes = visitor.good  # type: ignore[attr-defined]
    place = cut % len(good)
    found = visitor.open(good[:place] + put + good[place + len(put) :], sample=sample)
    assert found.status_code in {200, 400}
    assert found.status_code == 200 or found.json()["code"] in {"bad_file", "file_too_large"}
