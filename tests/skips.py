"""With ``CI=true`` a test that is skipped has failed: what a test needs has to be there. Loaded by ``conftest.py``."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

ALLOWED = {
    "SQLite has one writer and no advisory locks": "about PostgreSQL; the suite runs on it too",
    "a commit of SQLite's is on disk": "about PostgreSQL; the suite runs on it too",
    "the twin does not let others run": "about the compiled kernel; its twin is tested otherwise",
    "the twins were asked for": "LITHIFY_PURE=1 was set by whoever runs the tests",
}
"""Reasons of skips that are right everywhere, and why."""
SKIPPED = "Skipped: "


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Called by pytest for each phase of a test."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _judge(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Called by pytest for each module: one that skips itself has no tests to report."""
    report = yield
    if report.skipped:
        _judge(report)
    return report


def _judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix(SKIPPED)
    if os.environ.get("CI") == "true" and reason not in ALLOWED:
        report.outcome = "failed"
        report.longrepr = f"with CI=true nothing is skipped: {reason}"
