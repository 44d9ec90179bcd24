"""A merge job whose dataset is beyond the memory budget: cut by series, nothing lost, less held at once."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pyarrow as pa
import pytest

from engine.core.block_ids import result_ids
from engine.formats.profile_block.container.container import BlockReader, ObjectReader
from engine.formats.profile_block.merge_model import MergedDataset, Scratch
from engine.lanes.profiles.jobs import ProfileMergeSpec, SourceObject
from engine.lanes.profiles.merge import _dataset_merge_py, merge
from engine.lanes.profiles.merge.merge import merge_dataset, plan_outputs, run
from engine.lanes.profiles.merge.series_cut import estimate_bytes
from engine.query.top_functions import top_functions
from engine.storage import ObjectStore, open_store
from tests.engine.conftest import Implementation
from tests.engine.formats.profile_block.factories import (
    CPU,
    Dataset,
    ProfileRow,
    merge_spec,
    row,
    series_labels,
    write_block,
)
from tests.engine.formats.profile_block.results import result_meta

IDS = [f"01JKT3DJRETWN25NKEFZNEP1V{number}" for number in range(10)]


SERIES = 12
STACKS = 120


def wide_rows() -> tuple[ProfileRow, ...]:
    """One row per series; a series shares a tenth of its stacks with all others."""
    rows = []
    for series in range(SERIES):
        names = [f"shared {n}" if n % 10 == 0 else f"series {series} function {n} {'x' * 40}" for n in range(STACKS)]
        samples = [row((name, f"caller of {name}", "main"), value=n + 1).samples[0] for n, name in enumerate(names)]
        labels = series_labels(pod=f"pod {series:02}")
        rows.append(ProfileRow(labels, tuple(samples), id=series.to_bytes(16, "big")))
    return tuple(rows)


@pytest.fixture
def wide_source(store: ObjectStore) -> list[SourceObject]:
    """Two segments with one large dataset each, and a small one of another tenant."""
    rows = wide_rows()
    small = Dataset("zeta", "api", (row(id=77),))
    return [
        write_block(store, [Dataset("acme", "big", rows[0::2] + rows[1:4]), small], id=IDS[0]),
        write_block(store, [Dataset("acme", "big", rows[1::2])], id=IDS[1]),
    ]


def estimate(spec: ProfileMergeSpec, store: ObjectStore) -> int:
    sources = plan_outputs(spec)[0].datasets[0].sources
    readers = [(ObjectReader(store, source.key, source.object_size), source.dataset) for source in sources]
    return estimate_bytes([reader.dataset_source(dataset) for reader, dataset in readers])


@pytest.mark.slow
def test_a_dataset_three_times_the_budget_is_cut_by_series(
    merging: Implementation, store: ObjectStore, scratch: Scratch, wide_source: list[SourceObject]
) -> None:
    whole_spec = merge_spec(wide_source, fence=1)
    whole = run(whole_spec, store, scratch=scratch)
    assert len(whole.blocks) == 2
    budget = estimate(whole_spec, store) // 3
    cut = run(merge_spec(wide_source, fence=2, task_memory_bytes=budget), store, scratch=scratch)
    metas = [result_meta(store, cut, number) for number in range(len(cut.blocks))]
    assert len(cut.blocks) >= 4
    assert [meta.tenant for meta in metas] == ["acme", "zeta"] + ["acme"] * (len(metas) - 2)
    sources = [(source.id, 0) for source in wide_source]
    assert [block.id for block in cut.blocks] == result_ids(sources, len(cut.blocks), 2)
    assert (cut.rows_read, cut.rows_dropped) == (whole.rows_read, whole.rows_dropped) == (16, 3)
    acme = [(block.key, meta) for block, meta in zip(cut.blocks, metas, strict=True) if meta.tenant == "acme"]
    pods = [_pods(store, key) for key, _ in acme]
    assert [pod for part in pods for pod in part] == sorted(f"pod {n:02}" for n in range(SERIES))
    assert all(part for part in pods)
    answers = [
        top_functions(store, blocks, "acme", "big", CPU, 10_000)
        for blocks in ([(whole.blocks[0].key, result_meta(store, whole))], acme)
    ]
    assert answers[0].functions == answers[1].functions
    assert answers[0].total_value == answers[1].total_value == SERIES * STACKS * (STACKS + 1) // 2


def _pods(store: ObjectStore, key: str) -> list[str]:
    series = BlockReader.open(store, key).read_dataset_index("acme")
    assert series is not None
    return [dict(entry.labels)[b"pod"].decode() for entry in series]


def _peak(store_url: str, scratch: Scratch, spec: ProfileMergeSpec, budget: int) -> tuple[int, int]:
    """Return what a merge by the twin, whose memory Python can count, held at most, and its number of parts."""
    merge.merge_rows = _dataset_merge_py.merge_rows
    pa.array([0])  # the first array of Python values imports pandas, and would count
    (plan, _) = plan_outputs(spec)
    tracemalloc.start()
    parts = merge_dataset(plan.datasets[0], open_store(store_url), budget_bytes=budget, scratch=scratch)
    return tracemalloc.get_traced_memory()[1], len(parts)


@pytest.mark.slow
def test_a_cut_merge_holds_less_at_once(store: ObjectStore, scratch: Scratch, wide_source: list[SourceObject]) -> None:
    """In processes of their own: what else a test run has in memory, or does meanwhile, is counted too."""
    spec = merge_spec(wide_source[:1])
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        (whole, one), (cut, several) = (
            processes.submit(_peak, store.url, scratch, spec, budget).result()
            for budget in (1 << 40, estimate(spec, store) // 3)
        )
    assert one == 1 < several
    assert cut < 0.75 * whole


def test_rows_of_every_part_add_up(
    merging: Implementation, store: ObjectStore, scratch: Scratch, wide_source: list[SourceObject]
) -> None:
    (plan, _) = plan_outputs(merge_spec(wide_source))
    budget = estimate(merge_spec(wide_source), store) // 5
    parts: list[MergedDataset] = merge_dataset(plan.datasets[0], store, budget_bytes=budget, scratch=scratch)
    fingerprints = Counter(entry.fingerprint for part in parts for entry in part.series)
    assert set(fingerprints.values()) == {1}
    assert len(fingerprints) == SERIES
    assert sum(part.sample_count for part in parts) == SERIES * STACKS
