"""Samples of a set of blocks, to detect loss, duplicates and changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from engine.formats.profile_block.container.container import ObjectReader
from engine.formats.profile_block.merge_model import PROFILES, SERIES_INDEX, SYMBOLS
from engine.formats.profile_block.model import DATASET_PROFILES, BlockMeta, DatasetMeta, Labels
from engine.formats.profile_block.series.series_index import decode_series_index
from engine.formats.profile_block.symbols.symbols import decode_symbols
from engine.formats.profile_block.table.profile_table import SAMPLES, ProfileTableReader
from engine.query.stacks import StackResolver
from engine.storage import ObjectStore


class Sample(NamedTuple):
    """One stack of one row of one series; ``row`` is the row's ID."""

    tenant: str
    service: str
    labels: tuple[tuple[bytes, bytes], ...]
    time_ns: int
    row: bytes
    stack: tuple[str, ...]
    value: int


def samples_in(store: ObjectStore, blocks: Iterable[tuple[str, BlockMeta]]) -> Counter[Sample]:
    """Count every sample of these blocks (object key, metadata with ``size``); equal samples add up."""
    found: Counter[Sample] = Counter()
    for key, meta in blocks:
        reader = ObjectReader(store, key, meta.size)
        for dataset in meta.datasets:
            if dataset.format == DATASET_PROFILES:
                found.update(_dataset_samples(reader, dataset))
    return found


def _dataset_samples(reader: ObjectReader, dataset: DatasetMeta) -> Iterator[Sample]:
    source = reader.dataset_source(dataset)
    series = {entry.position: entry.labels for entry in decode_series_index(source.read_section(SERIES_INDEX))}
    stacks = {entry.id: StackResolver(entry) for entry in decode_symbols(source.read_section(SYMBOLS))}
    for batch in ProfileTableReader(source.read_section(PROFILES)).batches():
        yield from _batch_samples(batch, dataset, series, stacks)


def _batch_samples(
    batch: pa.RecordBatch, dataset: DatasetMeta, series: dict[int, Labels], stacks: dict[int, StackResolver]
) -> Iterator[Sample]:
    columns = [batch.column(name) for name in ("SeriesIndex", "StacktracePartition")]
    numbers, partitions = (column.to_pylist() for column in columns)
    times = batch.column("TimeNanos").cast(pa.int64()).to_pylist()
    rows = batch.column("ID").storage.to_pylist()
    for position, samples in enumerate(batch.column(SAMPLES).to_pylist()):
        for sample in samples:
            yield Sample(
                tenant=dataset.tenant,
                service=dataset.name,
                labels=tuple(series[numbers[position]]),
                time_ns=times[position],
                row=rows[position],
                stack=tuple(stacks[partitions[position]].functions(sample["StacktraceID"])),
                value=sample["Value"],
            )
