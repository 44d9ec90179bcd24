"""Phrases and identifiers that were replaced by the field's terms do not come back in shipped code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHIPPED = ("engine", "spark", "tasks", "webadmin")
RETIRED = (
    # what is retired, the term in its place
    (r"nobodys?_", "unclaimable"),
    (r"_become_deaf|\bdeaf\b", "_mark_disconnected"),
    (r"\bknock", "probe"),
    (r"\b_bear\b", "_on_poll_error"),
    (r"\b_take_in\b", "_apply_response"),
    (r"\b_go_on\b", "_run_post_commit_hooks"),
    (r"nobody wants job", "job cancelled"),
    (r"evictions register", "parked jobs"),
    (r"swaps_unasked", "swap_is_pipelined"),
    (r"deletion_line\b", "deletion_queue"),
    (r"\bNO_OPINION\b", "NEUTRAL"),
    (r"\bthe sheet\b", "the page in docs/reference"),
    (r"[Pp]ut tenants to sleep", "mark tenants idle"),
    (r"would do nothing, and nobody knew", "reject unknown fields"),
)


def shipped_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", *SHIPPED], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    kinds = {".py", ".pyx", ".pxd", ".pyi", ".html", ".ts"}
    paths = [ROOT / name for name in listing.split("\0") if name]
    return [path for path in paths if path.suffix in kinds and path.is_file() and "_pb2" not in path.name]


@pytest.mark.parametrize(("retired", "term"), RETIRED, ids=[term for _, term in RETIRED])
def test_retired_phrases_do_not_come_back(retired: str, term: str) -> None:
    pattern = re.compile(retired)
    found = [
        f"{path.relative_to(ROOT)}:{number}: use {term}"
        for path in shipped_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found
