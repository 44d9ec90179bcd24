"""What promtool reads in blocks that random merges made: every sample of a naive merge, and nothing to complain of."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.formats.prometheus.model import Labels
from tests.engine.lanes.tsdb.small_blocks import (
    SmallBlock,
    content,
    merged,
    naive_merge,
    small_blocks,
    ulid,
    without_deleted,
    write,
)

pytestmark = pytest.mark.skipif(
    not shutil.which("promtool"), reason="no promtool: ./dev test takes it out of its package"
)


def text(labels: Labels) -> str:
    return "{" + ", ".join(f'{name.decode()}="{value.decode()}"' for name, value in labels) + "}"


def number(bits: int) -> str:
    """A value so that equal ones are equal: all that are none look the same to promtool."""
    return repr(struct.unpack(">d", bits.to_bytes(8, "big"))[0])


def dumped(root: Path) -> dict[tuple[str, int], str]:
    """Return every sample that promtool finds in a data folder."""
    (root / "wal").mkdir()  # promtool reads a whole data folder
    done = subprocess.run(["promtool", "tsdb", "dump", str(root)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = (line.rsplit(" ", 2) for line in done.stdout.splitlines())
    return {(labels, int(time)): repr(float(value)) for labels, value, time in rows}


@settings(max_examples=5)
@given(st.lists(small_blocks(histograms=False), min_size=2, max_size=4), st.booleans())
def test_promtool_finds_every_sample_of_a_random_merge(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[SmallBlock], is_in_two_steps: bool
) -> None:
    root = tmp_path_factory.mktemp("random")
    folders = [write(root / "sources", number, block) for number, block in enumerate(blocks)]
    kept = [without_deleted(content(folder), block.deleted) for folder, block in zip(folders, blocks, strict=True)]
    if is_in_two_steps and merged(folders[:2], root / "half", 50).meta:
        folders[:2] = [root / "half" / ulid(50)]
    outcome = merged(folders, root / "data", 100)
    expected = {
        (text(labels), time): number(bits)
        for labels, samples in naive_merge(kept).items()
        for time, bits in samples.items()
        if isinstance(bits, int)
    }
    assert (dumped(root / "data") if outcome.meta else {}) == expected
