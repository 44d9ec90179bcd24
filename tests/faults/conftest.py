"""Fixtures for fault tests: the S3 server, and one stack of real processes that all tests of faults share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.faults.postgresql import running_postgresql
from tests.faults.stack import FaultStack, running_stack
from tests.object_stores import S3Server, s3_credentials, s3_server, s3_store

__all__ = ["s3_credentials", "s3_server", "s3_store"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--rounds N``: rounds of random kills (default 1)."""
    parser.addoption("--rounds", type=int, default=1, help="rounds of random kills, each of another seed")


STACK = pytest.StashKey[ExitStack]()
"""Holds the running stack, and stops it when closed."""


@pytest.hookimpl(tryfirst=True)  # Before xdist reads the groups.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that share the stack in one worker process, in sequence."""
    for item in items:
        if _uses_stack(item):
            item.add_marker(pytest.mark.stack)
            item.add_marker(pytest.mark.xdist_group("fault_stack"))
    items.sort(key=_uses_stack)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Stop the stack after the last of its tests; idle, it uses a fifth of the machine's processor time."""
    yield
    if nextitem is None or not _uses_stack(nextitem):
        item.config.stash.get(STACK, ExitStack()).close()


def _uses_stack(item: pytest.Item) -> bool:
    return "fault_stack" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def fault_stack(
    s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> FaultStack:
    """Return the stack on PostgreSQL and S3, which the hook above stops. Each test must leave it settled."""
    with ExitStack() as parts:
        postgresql = parts.enter_context(running_postgresql())
        home = tmp_path_factory.mktemp("faults")
        stack = parts.enter_context(running_stack(s3_server, postgresql, home))
        pytestconfig.stash[STACK] = parts.pop_all()
        return stack
