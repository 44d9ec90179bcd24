"""The hashes that spread series over the parts of a merge, by the twin and compiled: those of a library."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import LimitExceeded
from engine.formats.prometheus.index.index_reader import IndexReader
from engine.formats.prometheus.index.index_writer import IndexWriter
from engine.formats.prometheus.index.series_batch import series_batch


@pytest.fixture(scope="module", params=["_series_hashes_py", "_series_hashes"])
def hashes(request: pytest.FixtureRequest) -> ModuleType:
    """The twin and, where they are built, the compiled hashes."""
    try:
        return importlib.import_module(f"engine.lanes.tsdb.merge.{request.param}")
    except ModuleNotFoundError:
        pytest.skip("the kernels are not built")


@given(st.lists(st.dictionaries(st.binary(min_size=1, max_size=9), st.binary(max_size=40), max_size=5), max_size=5))
def test_each_hash_is_that_of_the_labels_with_a_byte_behind_each(
    hashes: ModuleType, tmp_path_factory: pytest.TempPathFactory, given_labels: list[dict[bytes, bytes]]
) -> None:
    root = tmp_path_factory.mktemp("hashes")
    texts = sorted({text for labels in given_labels for pair in labels.items() for text in pair})
    IndexWriter(root / "index", texts).finish()
    rows = [[text for name in sorted(labels) for text in (name, labels[name])] for labels in given_labels]
    batch = series_batch([([texts.index(text) for text in row], []) for row in rows])
    expected = [xxhash.xxh64_intdigest(b"".join(text + b"\xff" for text in row)) for row in rows]
    assert hashes.hash_series(batch, IndexReader(root / "index").symbols).tolist() == expected


def test_labels_that_are_too_long_together_are_refused(hashes: ModuleType, tmp_path: Path) -> None:
    IndexWriter(tmp_path / "index", [b"a" * (1 << 20), b"b"]).finish()
    batch = series_batch([([1, 0] * 20, [])])
    with pytest.raises(LimitExceeded):
        hashes.hash_series(batch, IndexReader(tmp_path / "index").symbols)
