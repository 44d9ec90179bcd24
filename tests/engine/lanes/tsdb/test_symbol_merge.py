"""Symbols of several tables become one table, by the twin and by the compiled merge, in blocks of any size."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.binary import encode_uvarint
from engine.formats.prometheus.index.index_reader import IndexReader
from engine.formats.prometheus.index.index_writer import IndexWriter
from engine.formats.prometheus.index.symbol_table import SymbolTable


@pytest.fixture(scope="module", params=["_symbol_merge_py", "_symbol_merge"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    """The twin and, where it is built, the compiled merge."""
    try:
        return importlib.import_module(f"engine.formats.prometheus.index.{request.param}")
    except ModuleNotFoundError:
        pytest.skip("the kernels are not built")


def table(root: Path, number: int, symbols: set[bytes]) -> SymbolTable:
    IndexWriter(root / str(number), sorted(symbols)).finish()
    return IndexReader(root / str(number)).symbols


@pytest.mark.slow
@given(
    st.lists(st.sets(st.binary(max_size=3), max_size=12), max_size=4),
    st.one_of(st.none(), st.integers(0, (1 << 12) - 1)),
    st.integers(1, 40),
)
def test_the_union_ascends_and_every_symbol_has_its_number_in_it(
    module: ModuleType,
    tmp_path_factory: pytest.TempPathFactory,
    given_symbols: list[set[bytes]],
    mask: int | None,
    most: int,
) -> None:
    root = tmp_path_factory.mktemp("tables")
    tables = [table(root, number, symbols) for number, symbols in enumerate(given_symbols)]
    used = None
    if mask is not None:
        used = [np.array([bool(mask >> place & 1) for place in range(len(each))], np.bool_) for each in tables]
    heads = np.zeros(len(tables), np.int64)
    translations = [np.full(len(each), 99, np.uint32) for each in tables]
    blocks, number = b"", 0
    while True:
        block, count = module.merge_symbols(tables, used, heads, translations, number, most)
        if not count:
            break
        blocks += block
        number += count
    taken = [
        [symbol for place, symbol in enumerate(each) if used is None or used[position][place]]
        for position, each in enumerate(tables)
    ]
    expected = sorted({symbol for symbols in taken for symbol in symbols})
    assert blocks == b"".join(encode_uvarint(len(symbol)) + symbol for symbol in expected)
    assert number == len(expected)
    for position, each in enumerate(tables):
        for place, symbol in enumerate(each):
            is_used = used is None or used[position][place]
            assert translations[position][place] == (expected.index(symbol) if is_used else 99)
