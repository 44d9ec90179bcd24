"""The page "Use Grafana" as it is written: its commands and addresses work, and its refusals are those there are."""

from __future__ import annotations

import base64
import io
import re
import shlex
from pathlib import Path

import pytest
from django.core.management import call_command

from engine.formats.proto import querier_pb2
from tests.webadmin.query.stored import Stored
from tests.webadmin.query.viewers.conftest import CPU, Viewer

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/how-to/use-grafana.md").read_text()
FENCED = re.findall(r"^```\w*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
BLOCKS = [block.replace("\\\n", " ").strip() for block in FENCED]


def command(beginning: str) -> list[str]:
    """Return the words of the page's command that begins so."""
    (line,) = [block for block in BLOCKS if block.startswith(beginning)]
    return shlex.split(line)


@pytest.fixture
def grafana(stored: Stored) -> Viewer:
    """A viewer with the credential that the page's first command makes."""
    program, name, *arguments = command("lithify create_worker_credential")
    assert program == "lithify"
    out = io.StringIO()
    call_command(name, *arguments, stdout=out)
    return Viewer(stored, out.getvalue().strip())


def test_the_credential_sees_its_tenant_with_basic_auth_under_any_path(grafana: Viewer) -> None:
    assert grafana.secret.startswith("lw_")
    basic = {"Authorization": "Basic " + base64.b64encode(f"grafana:{grafana.secret}".encode()).decode()}
    path = "/some/where/querier.v1.QuerierService/ProfileTypes"
    kind = "application/proto"
    tested = grafana.client.post(path, data=b"", content_type=kind, CONTENT_TYPE=kind, headers=basic)
    assert (tested.status_code, tested.content) == (200, b""), '"Save & test" succeeds without any data'
    grafana.write({"main": 3}, tenant="shop")
    grafana.write({"main": 4}, tenant="bank")
    assert grafana.stacks().flamegraph.total == 3
    assert grafana.post("ProfileTypes", b"", **{"X-Scope-OrgID": "bank"}).status_code == 403


def test_the_address_for_curl_draws_a_flame_graph(grafana: Viewer) -> None:
    grafana.write({"main": 3}, tenant="shop", service_name="shop.cart")
    words = command("curl")
    (address,) = [word for word in words if word.startswith("https://")]
    assert words[words.index("-u") + 1].startswith("any:lw_")
    fields = dict(word.split("=", 1) for word in words if word.startswith(("query=", "from=")))
    assert fields["query"].startswith(CPU)
    fields["from"] = str(grafana.start_ms)  # the data is of another day than this one
    basic = {"Authorization": "Basic " + base64.b64encode(f"any:{grafana.secret}".encode()).decode()}
    path = address.removeprefix("https://profiles.example.org")
    found = grafana.client.get(path, {**fields, "until": str(grafana.start_ms + 60_000)}, headers=basic)
    assert found.json()["flamebearer"]["numTicks"] == 3


def test_the_methods_and_headers_named_are_those_there_are(grafana: Viewer) -> None:
    for method in re.findall(r"`([A-Z]\w+)`", PAGE.split("## What is answered")[1].split("\n")[2]):
        assert grafana.post(method, b"").status_code in (200, 400), method
    request = querier_pb2.ProfileTypesRequest(**grafana.range()).SerializeToString()
    answer = grafana.post("ProfileTypes", request)
    named = set(re.findall(r"`(Lithify-[A-Za-z-]+|Server-Timing)`", PAGE)) - {"Lithify-Partial", "Lithify-Reason"}
    assert named == {name for name in answer.headers if name.startswith("Lithify-")} | {"Server-Timing"}


def test_every_reason_of_a_refusal_is_one_that_the_code_gives() -> None:
    table = PAGE.split("## When it is refused")[1]
    rows = re.findall(r"^\| \d{3} \| (.*?) \|", table, re.MULTILINE)
    reasons = {reason for row in rows for reason in re.findall(r"`(\w+)`", row)}
    sources = "".join(
        path.read_text() for folder in ("engine", "webadmin") for path in sorted((ROOT / folder).rglob("*.py"))
    )
    assert len(reasons) > 10
    assert [reason for reason in sorted(reasons) if f'"{reason}"' not in sources] == []
