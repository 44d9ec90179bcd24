"""What protects people's browsers, and who reads the log in a terminal: policies, origins, hosts, escapes."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import unfold
from django.contrib import admin
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from tasks.app import app as node_app
from tasks.beat import app as control_app
from tests.webadmin.lanes.catalog.api.conftest import Caller
from tests.webadmin.lanes.catalog.api.conftest import caller as caller  # a fixture
from webadmin.base.plain_log import OneLineFormatter
from webadmin.console import content_security

CONSOLE, THEME = Path(content_security.__file__).parent, Path(unfold.__file__).parent
SCRIPT = re.compile(r"<script(?![^>]*\bsrc=)(?![^>]*type=\"application/json\")[^>]*>", re.IGNORECASE)
HANDLER = re.compile(r"<[^>]+\son[a-z]+=", re.IGNORECASE)


def policy(answer: Any) -> dict[str, list[str]]:
    parts = [part.split() for part in answer.headers["Content-Security-Policy"].split(";")]
    return {part[0]: part[1:] for part in parts}


@pytest.fixture
def bundled_alpine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the file lies that ``./dev build`` bundles when it can reach npm's registry."""
    place = tmp_path / "alpine.js"
    place.touch()
    monkeypatch.setattr(content_security, "ALPINE", place)
    return place


@pytest.mark.parametrize(
    "name", ["admin:index", "progress-page", "flame-page", "placement-page", "docs", "admin:login"]
)
def test_pages_run_scripts_of_their_own_origin_only(admin_client: Client, bundled_alpine: Path, name: str) -> None:
    client = Client() if name == "admin:login" else admin_client
    answer = client.get(reverse(name))
    assert answer.status_code == 200
    found = policy(answer)
    assert found["script-src"] == ["'self'"]
    assert (found["object-src"], found["frame-ancestors"]) == (["'none'"], ["'none'"])
    text = answer.content.decode()
    assert not SCRIPT.findall(text), "an inline script would be refused"
    assert not HANDLER.findall(text), "an event handler in an attribute would be refused"


def test_code_is_evaluated_only_while_the_bundle_is_missing_and_below_the_admin_only(
    admin_client: Client, bundled_alpine: Path
) -> None:
    bundled_alpine.unlink()
    assert set(policy(admin_client.get("/admin/"))["script-src"]) == {"'self'", "'unsafe-eval'"}
    assert policy(admin_client.get("/api/docs/"))["script-src"] == ["'self'"]


CHANGED = {
    "layouts/skeleton.html": (
        re.compile(r"\n +x-data=\"(?:\{\n.*?\n +\}|adminPage\([^\"]*\))\"(?:\n +x-init=\"\n.*?\n +\")?", re.DOTALL),
    ),
    "helpers/welcomemsg.html": (re.compile(r"; localStorage\.setItem\([^\"]*\);(?=\")"),),
    "helpers/command.html": (
        re.compile(r"(?<=x-data=\")(?:searchCommand|adminCommand)"),
        re.compile(r"(?<=keydown\.enter\.prevent=\")[^\"]*"),
    ),
}
"""What of the theme's templates is different in ours."""


@pytest.mark.parametrize("name", CHANGED)
def test_templates_of_the_theme_differ_from_ours_in_expressions_only(name: str) -> None:
    """A new version of the theme comes with new templates: take them over, with these expressions."""
    ours, themes = ((folder / "templates/unfold" / name).read_text() for folder in (CONSOLE, THEME))
    assert ours != themes
    for expression in CHANGED[name]:
        assert expression.search(themes)
        ours, themes = expression.sub("", ours), expression.sub("", themes)
    assert ours == themes


@pytest.mark.parametrize("path", ["/", "/healthz", "/api/v1/progress", "/lakefs/api/v1/repositories", "/nowhere"])
def test_every_answer_has_a_policy(db: None, path: str) -> None:
    assert policy(Client().get(path))["script-src"] == ["'self'"]


@pytest.mark.parametrize("model", admin.site._registry, ids=lambda model: model._meta.label_lower)
def test_no_list_or_form_of_the_admin_has_inline_scripts(admin_client: Client, model: type[Model]) -> None:
    place = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    for page in ("changelist", "add"):
        text = admin_client.get(reverse(f"{place}_{page}")).content.decode()
        assert not SCRIPT.findall(text), page
        assert not HANDLER.findall(text), page


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),
        ({"Origin": "http://testserver"}, 201),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 201),
    ],
)
def test_another_site_changes_nothing_in_the_catalog(caller: Caller, headers: dict[str, str], status: int) -> None:
    body = {"name": "new", "storage_namespace": "local://new"}
    assert caller.send("POST", "repositories", body, **headers).status_code == status
    assert caller.get("repositories", **headers).status_code == 200, "reading changes nothing"


def test_a_trusted_origin_may_change_the_catalog(caller: Caller, settings: Any) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://ui.example"]
    body = {"name": "new", "storage_namespace": "local://new"}
    assert caller.send("POST", "repositories", body, Origin="https://ui.example").status_code == 201


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_what_a_form_can_send_is_no_json(caller: Caller, kind: str) -> None:
    body = b'{"name": "new", "storage_namespace": "local://new"}'
    answer = caller.send("POST", "repositories", body, **{"Content-Type": kind})
    assert answer.status_code == 415
    assert caller.send("POST", "repositories", body, **{"Content-Type": "application/json"}).status_code == 201


@pytest.mark.parametrize("path", ["/ingest", "/push.v1.PusherService/Push", "/pyroscope/ingest"])
def test_pushes_to_another_host_are_refused(db: None, path: str) -> None:
    answer = Client().post(path, b"", content_type="application/proto", headers={"Host": "evil.example"})
    assert answer.status_code == 400
    assert b"ALLOWED_HOSTS" in answer.content


def test_workers_take_no_orders_from_the_broker() -> None:
    assert not node_app.conf.worker_enable_remote_control
    assert not control_app.conf.worker_enable_remote_control


def written(log: Callable[[logging.Logger], None]) -> str:
    stream, logger = io.StringIO(), logging.Logger("tasks")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(OneLineFormatter("{levelname} {message}", style="{"))
    logger.addHandler(handler)
    log(logger)
    return stream.getvalue()


def test_a_log_record_is_one_line_whatever_a_worker_sent() -> None:
    hostile = "failed\nCRITICAL all is lost\x1b[2J\r\u2028\x9b31m"
    line = written(lambda log: log.error("run_failed message=%s", hostile))
    assert line == "ERROR run_failed message=failed\\nCRITICAL all is lost\\x1b[2J\\r\\u2028\\x9b31m\n"


def test_a_traceback_keeps_its_lines_and_escapes_them() -> None:
    def log(logger: logging.Logger) -> None:
        try:
            raise ValueError("\x1b[2J\nCRITICAL all is lost")
        except ValueError:
            logger.exception("broken")

    lines = written(log).splitlines()
    assert lines[0] == "ERROR broken"
    assert all(line.startswith("  ") for line in lines[1:])
    assert "\x1b" not in "".join(lines)
