"""Go's own pprof, run on profiles of ours. What it writes lies in a folder of the test or in the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

GO_CACHE = Path(__file__).parents[1] / ".lithify" / "go-cache"
"""Some versions of Go compile pprof when it is first used."""

needs_pprof = pytest.mark.skipif(
    not (shutil.which("pprof") or shutil.which("go")), reason="no pprof of Go: apt-get install golang-go"
)


def run_pprof(folder: Path, *arguments: str) -> str:
    """Return what pprof prints; AssertionError with its errors if it fails. ``folder`` stands for the home folder."""
    tool = ["pprof"] if shutil.which("pprof") else ["go", "tool", "pprof"]
    homes = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "PPROF_TMPDIR"), str(folder))
    environment = os.environ | homes | {"GOCACHE": str(GO_CACHE)}
    done = subprocess.run([*tool, *arguments], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
