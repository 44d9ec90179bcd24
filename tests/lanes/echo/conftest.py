"""One installation with the lane of text files, which the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.settings.lanes import SHIPPED_LANES
from tests.faults.postgresql import running_postgresql
from tests.faults.stack import FaultStack, running_stack
from tests.migrated import migrate
from tests.object_stores import S3Server, s3_credentials, s3_server

__all__ = ["s3_credentials", "s3_server"]
HERE = Path(__file__).parent
LANES = {"LITHIFY_LANES": ",".join([*SHIPPED_LANES, "tests.lanes.echo"])}


@pytest.hookimpl(tryfirst=True)  # Before xdist reads the groups.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that share the installation in one worker process."""
    for item in items:
        if HERE in item.path.parents and "echo_stack" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.stack)
            item.add_marker(pytest.mark.xdist_group("echo_stack"))


@pytest.fixture
def with_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Support the lane in this process."""
    for name, value in LANES.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def echo_stack(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultStack]:
    """The installation. Lanes are a setting of its processes only."""
    with running_postgresql() as postgresql:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in LANES.items():
                patch.setenv(name, value)
            migrate(postgresql.url)
        home = tmp_path_factory.mktemp("echo")
        with running_stack(s3_server, postgresql, home, LANES) as stack:
            yield stack
