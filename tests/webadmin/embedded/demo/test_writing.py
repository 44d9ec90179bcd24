"""The write path is filled round after round until there are segments enough, with or without the SDK."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest
from django.test import RequestFactory
from rich.console import Console

from engine.storage import open_store
from tests.webadmin.embedded.demo.listener import Listener
from tests.webadmin.service import Service
from webadmin.base.senders import Senders
from webadmin.embedded.demo import writing
from webadmin.embedded.demo.plan import TENANTS, Recording
from webadmin.embedded.demo.steps import Steps
from webadmin.embedded.demo.writing import WritePath

SERVICES = 4


def test_without_the_sdk_one_line_is_printed_and_rounds_are_pushed_until_segments_suffice(
    service: Service,
    listener: Listener,
    recordings: list[Recording],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "pyroscope.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(writing, "live_count", lambda: len(listener.requests))  # as if each push became a segment
    output = io.StringIO()
    steps = Steps(Console(file=output, width=150), 1)
    path = WritePath(listener.address, open_store(f"file://{tmp_path}/objects"), tmp_path, steps)

    assert not path.fill(recordings, 2 * SERVICES * len(TENANTS) - 1)

    said = output.getvalue().splitlines()
    assert len([line for line in said if "SDK" in line and "not installed" in line]) == 1
    assert any("16 pushes acknowledged: 16 profiles" in line for line in said)
    senders = Senders()
    pushed = Counter(
        senders.identify(
            RequestFactory().post(one.path, headers={"Authorization": one.headers["authorization"]})
        ).tenant
        for one in listener.requests
    )
    assert pushed == dict.fromkeys(TENANTS, 2 * SERVICES)
