"""What every test may ask for: the real files of other programs, and nothing of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from hypothesis import HealthCheck, settings

# Here and nowhere below: two folders that each had it would set up one database twice.
from tests import spark_classes
from tests.database import django_db_keepdb, django_db_modify_db_settings  # noqa: F401
from tests.skips import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401

SHARED = Path(os.environ.get("LITHIFY_SHARED", Path(__file__).parents[2] / "shared"))
FOREIGN_DATA = SHARED / "data"

# On a busy machine an example may take any time; no test fails by the wall clock. CI tries the same examples each time,
# so that a change is judged by what it changed; whoever runs the tests elsewhere tries new ones.
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",
)
settings.load_profile("patient")
# For suites that run a second time, with other kernels: what they look for are errors of memory, not of thought.
settings.register_profile("second_run", parent=settings.get_profile("patient"), max_examples=40)

# Tests adopt what they made in their temporary folders; processes that they start inherit it.
os.environ["STORE_ROOTS"] = "file:///,s3://*"
django_settings.STORE_ROOTS = ["file:///", "s3://*"]

os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_classes.options())
# The tests' databases are unsafe on purpose. Processes that tests start read it; ours has its settings already.
os.environ.setdefault("ALLOW_UNSAFE_DATABASE", "1")

_not_run: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--rewrite`` writes found outcomes into the scenario files instead of comparing; review the difference."""
    parser.addoption("--rewrite", action="store_true", help="put the outcomes that were found into scenario files")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the tests that need foreign data where there is none; with CI=true that is an error."""
    if FOREIGN_DATA.is_dir():
        return
    foreign = [item for item in items if item.get_closest_marker("foreign_data")]
    if foreign and os.environ.get("CI") == "true":
        raise pytest.UsageError(f"CI=true and no foreign data in {FOREIGN_DATA}: set LITHIFY_SHARED")
    _not_run.extend(item.nodeid for item in foreign)
    items[:] = [item for item in items if not item.get_closest_marker("foreign_data")]
    config.hook.pytest_deselected(items=foreign)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests had no foreign data to run on."""
    if _not_run:
        terminalreporter.write_line(f"no foreign data: {len(_not_run)} not run")


@pytest.fixture(scope="session")
def foreign_data() -> Path:
    """The folder with real files of other programs; tests that use it are marked ``foreign_data``."""
    return FOREIGN_DATA


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name long bytes by their length: the name of a test goes into the environment of the processes it starts."""
    return f"{len(val)}-bytes" if isinstance(val, bytes) and len(val) > 40 else None
