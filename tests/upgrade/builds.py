"""Another build of this source: a copy with a version of its own and a planner that decides otherwise."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from engine.schedule.model import FORMAT_VERSION
from tests.processes import ROOT

PACKAGES = ("engine", "tasks", "webadmin")
NEWER = "99.0.0"
NEWER_FORMAT = FORMAT_VERSION + 1
NAME_PREFIX = "newer-"

NEWER_BUILD: Mapping[str, tuple[str, str]] = {
    "engine/core/version.py": (r'VERSION = ".*"', f'VERSION = "{NEWER}"'),
    "engine/schedule/model.py": (rf"(?m)^FORMAT_VERSION = {FORMAT_VERSION}$", f"FORMAT_VERSION = {NEWER_FORMAT}"),
    # Smaller jobs, under other names: that nothing is planned twice must not rest on equal names of equal plans.
    "engine/lanes/profiles/plan/levels.py": (r"policy\.blocks_max\b", "max(1, policy.blocks_max // 2)"),
    "engine/schedule/job_names.py": (r'f"\{digest', f'f"{NAME_PREFIX}{{digest'),
}
"""What to change in which file: a pattern that must occur, and what takes its place."""


def make_build(folder: Path, changes: Mapping[str, tuple[str, str]]) -> Path:
    """Copy the packages into ``folder`` and change them; compiled modules stay where they are and are linked."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
        for module in (ROOT / package).rglob("*.so"):
            (folder / module.relative_to(ROOT)).symlink_to(module)
    for name, (pattern, replacement) in changes.items():
        text, count = re.subn(pattern, replacement, (folder / name).read_text())
        assert count, f"{name} has nothing like {pattern!r} any more: change another place"
        (folder / name).write_text(text)
    return folder
