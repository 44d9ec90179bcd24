"""Fuzzes the compiled readers and the merge: ``python -m tests.fuzz.fuzz_profile_sections --seconds 60 [FILES]``.

FILES are blocks with a footer; without any, made sections are the seeds. Every damaged section goes into a merge beside
good ones. It must end with a typed error or a result, and where the twin also gives a result it must be the same one.
A failure prints the seed that repeats it. Build with LITHIFY_DEBUG_BUILD=1 to check more.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.core.errors import BadObject
from engine.formats.profile_block.container.metadata import read_footer
from engine.formats.profile_block.merge_model import MergedDataset, Scratch
from engine.formats.profile_block.table.table_footer import check_table_footer
from engine.lanes.profiles.merge import _dataset_merge, _dataset_merge_py
from tests.engine.formats.profile_block.factories import (
    HEAP,
    TIME_NS,
    Sample,
    Sections,
    make_sections,
    row,
    series_labels,
)
from tests.fuzz.section_mutations import (
    Damage,
    damaged_series_index,
    damaged_symbols,
    mutated,
    without_page_checksums,
)

SECTIONS: dict[str, tuple[Damage, ...]] = {
    "profiles": (mutated,),
    "series_index": (damaged_series_index, mutated),
    "symbols": (damaged_symbols, mutated),
}
Outcome = tuple[bytes, ...] | str


def made_seeds() -> list[Sections]:
    """Return datasets with spans, traces, annotations, two partitions and several series."""
    trace = bytes(range(16))
    spans = tuple(Sample(("leaf", "middle", "main")[-n:], n, span_id=n, trace_id=trace) for n in (1, 2, 3))
    first = [replace(row(id=n, time_ns=TIME_NS + n, labels=series_labels(pod="x")), samples=spans) for n in range(3)]
    second = [
        row(("leaf", f"f{n}", "main"), id=n, partition=n % 2, annotations=(("key", "value"),) * (n % 3))
        for n in range(8)
    ]
    third = [row((f"g{n}",), id=n, labels=series_labels(HEAP, pod=f"{n % 3}")) for n in range(40)]
    return [make_sections(first), make_sections(second), make_sections([*first, *third])]


def file_seeds(paths: Sequence[Path]) -> list[Sections]:
    """Return the datasets of block files."""
    seeds = []
    for path in paths:
        data = path.read_bytes()
        meta = read_footer(lambda offset, length, data=data: data[offset : offset + length], len(data))
        for dataset in meta.datasets:
            if dataset.format == 0:
                parts = [data[offset : offset + size] for offset, size in dataset.section_bounds()]
                seeds.append(Sections(*parts, series=()))
    return seeds


def damaged(seed: Sections, draw: random.Random) -> Sections:
    """Return the dataset with one section damaged."""
    section = draw.choice(list(SECTIONS))
    data = getattr(seed, section)
    if section == "profiles" and draw.random() < 0.8:
        data = without_page_checksums(data, draw)
    return replace(seed, **{section: draw.choice(SECTIONS[section])(data, draw)})


def outcome(module: object, sources: Sequence[Sections], scratch: Scratch) -> Outcome:
    """Merge and return the sections, or the error's section."""
    opened = [sections.source(f"object {number}") for number, sections in enumerate(sources)]
    try:
        merged: MergedDataset = module.merge_rows(  # type: ignore[attr-defined]
            opened, selection=None, scratch=scratch, cancelled=lambda: False
        )
    except BadObject as error:
        return error.section
    return tuple(b"".join(section.chunks()) for section in merged.sections)


def try_one(seed_number: int, seeds: Sequence[Sections], scratch: Scratch, *, compare: bool) -> str:
    """Merge a damaged dataset beside a good one; return what came of it ("merged" or an error's section)."""
    draw = random.Random(seed_number)
    sources = [damaged(draw.choice(seeds), draw), draw.choice(seeds)][: draw.randint(1, 2)]
    found = outcome(_dataset_merge, sources, scratch)
    if compare and isinstance(found, tuple) and all(map(pyarrow_survives, sources)):
        expected = outcome(_dataset_merge_py, sources, scratch)
        assert not isinstance(expected, tuple) or found == expected, f"seed {seed_number}: the twin merges otherwise"
    return found if isinstance(found, str) else "merged"


def pyarrow_survives(sections: Sections) -> bool:
    """Say whether the twin may look: pyarrow ends the process on some footers that the page decoder reads."""
    try:
        check_table_footer(lambda offset, length: sections.profiles[offset : offset + length], len(sections.profiles))
    except BadObject:
        return False
    return True


def main() -> int:
    """Run until the time is over; print how often what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compare", action="store_true", help="ask the twin too (slow)")
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    seeds = file_seeds(options.files) or made_seeds()
    outcomes: Counter[str] = Counter()
    deadline = time.monotonic() + options.seconds
    number = options.seed
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < deadline:
            try:
                outcomes[try_one(number, seeds, Scratch(Path(folder)), compare=options.compare)] += 1
            except BaseException:
                print(f"failed: --seed {number}", file=sys.stderr)
                raise
            number += 1
    print(dict(outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
