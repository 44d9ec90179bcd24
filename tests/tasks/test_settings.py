"""A node's settings: sensible by default, refused with the variable's name when they make no sense."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tasks.errors import BadSetting
from tasks.settings import NodeSettings

CREDENTIAL = {"WORKER_CREDENTIAL": "lw_key_secret"}


def test_a_credential_is_all_that_must_be_set() -> None:
    settings = NodeSettings.from_environment(CREDENTIAL)
    assert settings.service_url == "http://127.0.0.1:8000"
    assert settings.object_store_url == f"file://{Path('.lithify').resolve()}/objects"
    assert settings.capacity == os.cpu_count()
    assert settings.memory_bytes > 64 << 20
    assert (settings.poll_seconds, settings.merge_on, settings.name) == (1.0, "spark", "")


def test_what_is_set_is_taken() -> None:
    settings = NodeSettings.from_environment(
        CREDENTIAL
        | {"NODE_CAPACITY": "7", "NODE_MEMORY_BYTES": "1073741824", "POLL_SECONDS": "0.5", "NODE_NAME": "sand"}
    )
    assert (settings.capacity, settings.memory_bytes, settings.poll_seconds) == (7, 1 << 30, 0.5)
    assert settings.name == "sand"


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
def test_a_setting_that_makes_no_sense_is_named(name: str, value: str) -> None:
    with pytest.raises(BadSetting, match=name):
        NodeSettings.from_environment(CREDENTIAL | {name: value})
