"""A node's settings: sensible by default, refused with the variable's name when they make no sense."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.settings.base import BadSetting
from engine.settings.node import NodeSettings
from tests.environments import set_only

CREDENTIAL = {"WORKER_CREDENTIAL": "lw_key_secret"}


def test_a_credential_is_all_that_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    set_only(monkeypatch, CREDENTIAL)
    settings = NodeSettings.read()
    assert settings.SERVICE_URL == "http://127.0.0.1:8000"
    assert f"file://{Path('.lithify').resolve()}/objects" == settings.OBJECT_STORE_URL
    assert os.cpu_count() == settings.NODE_CAPACITY
    assert settings.NODE_MEMORY_BYTES > 64 << 20
    assert (settings.POLL_SECONDS, settings.MERGE_ON, settings.NODE_NAME) == (1.0, "spark", "")


@pytest.mark.parametrize(("memory", "poll"), [("1073741824", "0.5"), ("1 GiB", "500 ms")])
def test_what_is_set_is_taken(monkeypatch: pytest.MonkeyPatch, memory: str, poll: str) -> None:
    values = {"NODE_CAPACITY": "7", "NODE_MEMORY_BYTES": memory, "POLL_SECONDS": poll, "NODE_NAME": "sand"}
    set_only(monkeypatch, CREDENTIAL | values)
    settings = NodeSettings.read()
    assert (settings.NODE_CAPACITY, settings.NODE_MEMORY_BYTES, settings.POLL_SECONDS) == (7, 1 << 30, 0.5)
    assert settings.NODE_NAME == "sand"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORKER_CREDENTIAL", ""),
        ("NODE_CAPACITY", "0"),
        ("NODE_CAPACITY", "many"),
        ("NODE_CAPACITY", "100000"),
        ("NODE_MEMORY_BYTES", "1"),
        ("POLL_SECONDS", "0"),
        ("POLL_SECONDS", "nan"),
        ("POLL_SECONDS", "3600"),
        ("MERGE_ON", "paper"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_only(monkeypatch, CREDENTIAL | {name: value})
    with pytest.raises(BadSetting, match=name):
        NodeSettings.read()
