"""A bounded run of the fuzzer of tests/fuzz: damaged sections end in a typed error or in what the twin gives.

It tries the compiled readers (_series_reader, _symbol_reader, _symbol_ranges, _stack_tree_reader, _page_reader) behind
their checksums, and what a merge then writes (_series_writer, _symbol_writer).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from engine.formats.profile_block.merge_model import Scratch
from tests.engine.conftest import ForeignBlocks
from tests.engine.formats.profile_block.factories import Sections
from tests.fuzz.fuzz_profile_sections import made_seeds, try_one


def tried(first_seed: int, count: int, seeds: list[Sections], folder: Path, *, compare: bool) -> Counter[str]:
    scratch = Scratch(folder)
    return Counter(try_one(number, seeds, scratch, compare=compare) for number in range(first_seed, first_seed + count))


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", [1, 10_001, 20_001])
def test_damaged_sections_end_in_a_typed_error_or_the_twins_result(tmp_path: Path, first_seed: int) -> None:
    outcomes = tried(first_seed, 1000, made_seeds(), tmp_path, compare=True)
    assert set(outcomes) == {"profiles", "series_index", "symbols", "merged"}
    assert min(outcomes.values()) > 20


@pytest.mark.slow
@pytest.mark.foreign_data
def test_damaged_real_sections_end_in_a_typed_error(foreign_blocks: ForeignBlocks, tmp_path: Path) -> None:
    seeds = [
        Sections(*(block.section(dataset, number) for number in range(3)), series=())
        for block in foreign_blocks.all()
        for dataset in block.meta.datasets
        if dataset.format == 0 and dataset.size < 60_000
    ]
    outcomes = tried(1, 400, seeds, tmp_path, compare=False)
    assert {"profiles", "series_index", "symbols"} <= set(outcomes)
