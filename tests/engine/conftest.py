"""Fixtures of the profile tests: both implementations of every kernel, and the real blocks of other programs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine.formats.profile_block.container.metadata import encode_metadata, read_footer
from engine.formats.profile_block.container.metadata_file import read_metadata_file
from engine.formats.profile_block.merge_model import Scratch
from engine.formats.profile_block.model import BlockMeta, DatasetMeta
from engine.formats.profile_block.series import series_index
from engine.formats.profile_block.symbols import symbols
from engine.ingest.segments import _intake_py, intake
from engine.lanes.profiles.jobs import SourceObject
from engine.lanes.profiles.merge import dataset_merge, merge
from engine.storage import ObjectStore, open_store

KERNELS = {kernel.__name__.rpartition(".")[2]: kernel.__package__ for kernel in (series_index, symbols, dataset_merge)}


def _compiled(kernel: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"{KERNELS[kernel]}._{kernel}")
    except ImportError:
        return None


COMPILED = {kernel: module for kernel in KERNELS if (module := _compiled(kernel)) is not None}


@dataclass(frozen=True)
class Implementation:
    """The codecs and the merge of one implementation; a part that is not compiled is the twin's."""

    name: str
    decode_series_index: Callable[..., Any]
    encode_series_index: Callable[..., Any]
    decode_symbols: Callable[..., Any]
    encode_symbols: Callable[..., Any]
    merge_rows: Callable[..., Any]


def implementation_of(name: str) -> Implementation:
    """Return the twin ("python"), or whatever is compiled of it."""

    def module(kernel: str) -> ModuleType:
        twin = importlib.import_module(f"{KERNELS[kernel]}._{kernel}_py")
        return COMPILED.get(kernel, twin) if name == "compiled" else twin

    return Implementation(
        name=name,
        decode_series_index=module("series_index").decode_series_index,
        encode_series_index=module("series_index").encode_series_index,
        decode_symbols=module("symbols").decode_symbols,
        encode_symbols=module("symbols").encode_symbols,
        merge_rows=module("dataset_merge").merge_rows,
    )


@pytest.fixture(scope="session", params=["python", *(["compiled"] if COMPILED else [])])
def implementation(request: pytest.FixtureRequest) -> Implementation:
    """Every test that asks for this runs on the twin and, when it is built, on the compiled implementation."""
    return implementation_of(request.param)


@pytest.fixture
def merging(implementation: Implementation, monkeypatch: pytest.MonkeyPatch) -> Implementation:
    """Make ``engine.lanes.profiles.merge.merge`` use the implementation under test."""
    monkeypatch.setattr(merge, "merge_rows", implementation.merge_rows)
    return implementation


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """An empty store in a folder."""
    return open_store(f"file://{tmp_path / 'store'}")


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    """Scratch space whose folder a test can look into."""
    return Scratch(tmp_path / "scratch")


@dataclass(frozen=True)
class Block:
    """A whole object in memory with its metadata."""

    key: str
    data: bytes
    meta: BlockMeta

    def section(self, dataset: DatasetMeta, number: int) -> bytes:
        offset, size = dataset.section_bounds()[number]
        return self.data[offset : offset + size]

    def sections(self, number: int) -> Iterator[bytes]:
        """Yield one section of every dataset of format 0."""
        for dataset in self.meta.datasets:
            if dataset.format == 0:
                yield self.section(dataset, number)

    def source(self) -> SourceObject:
        return SourceObject(id=self.meta.id, key=self.key, size=len(self.data), metadata=encode_metadata(self.meta))


@dataclass(frozen=True)
class ForeignBlocks:
    """The blocks of another program: five segments of 2024 and three compacted samples, by id in the path."""

    store: ObjectStore
    blocks: dict[str, Block]

    def __getitem__(self, prefix: str) -> Block:
        (found,) = [block for name, block in self.blocks.items() if name.startswith(prefix)]
        return found

    def all(self) -> list[Block]:
        return list(self.blocks.values())


@pytest.fixture(scope="session")
def foreign_blocks(foreign_data: Path) -> ForeignBlocks:
    """Every foreign block; tests that use it are marked ``foreign_data``."""
    root = foreign_data / "profiles" / "objects"
    store = open_store(f"file://{root}")
    blocks = {}
    for meta in read_metadata_file((root / "segments-meta.json").read_bytes()):
        key = f"segments/{meta.shard}/anonymous/{meta.id}/block.bin"
        data = store.get(key)
        blocks[meta.id] = Block(key, data, replace(meta, size=len(data)))
    for path in sorted(root.glob("samples/*/block.bin")):
        data = path.read_bytes()
        meta = read_footer(lambda offset, length, data=data: data[offset : offset + length], len(data))
        blocks[path.parent.name] = Block(f"samples/{path.parent.name}/block.bin", data, meta)
    return ForeignBlocks(store, blocks)


@pytest.fixture(params=["twin", "compiled"])
def each_intake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test on both implementations behind ``intake``."""
    if request.param == "twin":
        monkeypatch.setattr(intake, "Intake", _intake_py.Intake)
        monkeypatch.setattr(intake, "DatasetBuilder", _intake_py.DatasetBuilder)
        return
    try:
        monkeypatch.setattr(intake, "Intake", importlib.import_module("engine.ingest.segments._intake").Intake)
        rows = importlib.import_module("engine.ingest.segments._dataset_rows")
        monkeypatch.setattr(intake, "DatasetBuilder", rows.DatasetBuilder)
    except ModuleNotFoundError:
        pytest.skip("the kernels are not built")
