"""Where does the time go: the functions of one service with the largest own values, over any set of blocks.

A row that several blocks hold (equal fingerprint, time and ID) counts once, so the answer is the same before and after
blocks are merged. Rows that delete requests name do not count, whether their objects were rewritten yet or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.profiles import masks as delete_masks  # the module: it imports selectors, and so this package, itself
from engine.profiles.container import ObjectReader
from engine.profiles.errors import BadObject, BadReference
from engine.profiles.merge_model import PROFILES, SERIES_INDEX, SYMBOLS, DatasetSource
from engine.profiles.model import DATASET_PROFILES, BlockMeta, DatasetMeta, IndexedSeries
from engine.profiles.profile_table import SAMPLES, ProfileTableReader
from engine.profiles.query.stacks import StackResolver
from engine.profiles.series_index import decode_series_index
from engine.profiles.symbols import decode_symbols
from engine.protocol.profile_jobs import DeleteMask
from engine.storage.model import ObjectStore

PROFILE_TYPE = "__profile_type__"

Visible = Mapping[str, Mapping[int, Sequence[DeleteMask]]]
"""What an index shows: by object key the positions of the datasets that may be read, each with the delete masks that
its bytes do not obey yet."""


class FunctionValue(NamedTuple):
    """What a function used itself, and with everything it called (once per stack, however deep it recurses)."""

    function: str
    self_value: int
    total_value: int


class QueryStatistics(NamedTuple):
    """What the answer cost."""

    objects_opened: int
    requests: int
    bytes_read: int
    rows_read: int


class TopFunctions(NamedTuple):
    """The largest functions, by own value then name; ``total_value`` is the sum of all samples."""

    functions: tuple[FunctionValue, ...]
    total_value: int
    statistics: QueryStatistics


class _Stack(NamedTuple):
    partition: int
    id: int


def top_functions(
    store: ObjectStore,
    blocks: Sequence[tuple[str, BlockMeta]],
    tenant: str,
    service: str,
    profile_type: str,
    limit: int,
    *,
    visible: Visible | None = None,
) -> TopFunctions:
    """Return the ``limit`` functions of a service with the largest own values of a profile type.

    ``blocks`` are (object key, metadata with ``size``). ``visible`` is what the index shows of them; None, everything:
    there is no index to ask. Raises a BadObject naming an object that cannot be read.
    """
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    everything = 0
    rows = _Rows()
    readers: list[ObjectReader] = []
    for key, meta in blocks:
        shown = dict.fromkeys(range(len(meta.datasets)), ()) if visible is None else visible.get(key, {})
        wanted = [
            (meta.datasets[position], masks)
            for position, masks in sorted(shown.items())
            if _is_wanted(meta.datasets[position], tenant, service, profile_type)
            if not any(mask.is_total for mask in masks)
        ]
        if not wanted:
            continue
        reader = ObjectReader(store, key, meta.size)
        readers.append(reader)
        for dataset, masks in wanted:
            for names, value in _read_dataset(reader.dataset_source(dataset), profile_type, masks, rows):
                everything += value
                own.update({names[0]: value} if names else {})
                total.update(dict.fromkeys(names, value))
    largest = sorted(total, key=lambda name: (-own[name], name))[:limit]
    return TopFunctions(
        functions=tuple(FunctionValue(name, own[name], total[name]) for name in largest),
        total_value=everything,
        statistics=QueryStatistics(
            objects_opened=len(readers),
            requests=sum(reader.requests for reader in readers),
            bytes_read=sum(reader.bytes_read for reader in readers),
            rows_read=rows.count,
        ),
    )


def _is_wanted(dataset: DatasetMeta, tenant: str, service: str, profile_type: str) -> bool:
    if dataset.format != DATASET_PROFILES or (dataset.tenant, dataset.name) != (tenant, service):
        return False
    # Datasets of old writers have no label sets; only opening them tells what they hold.
    typed = [value for label_set in dataset.labels for name, value in label_set if name == PROFILE_TYPE]
    return not typed or profile_type in typed


class _Rows:
    """The rows counted so far; a row with equal fingerprint, time and ID is the same row."""

    def __init__(self) -> None:
        self.count = 0
        self._seen: set[tuple[int, int, bytes]] = set()

    def is_new(self, fingerprint: int, time_ns: int, row_id: bytes) -> bool:
        self.count += 1
        before = len(self._seen)
        self._seen.add((fingerprint, time_ns, row_id))
        return len(self._seen) > before


def _read_dataset(
    source: DatasetSource, profile_type: str, masks: Sequence[DeleteMask], rows: _Rows
) -> Iterator[tuple[list[str], int]]:
    """Yield (function names leaf first, value) of every stack that the profile type's rows have and no mask takes."""
    try:
        indexed = decode_series_index(source.read_section(SERIES_INDEX))
        hidden = delete_masks.HiddenRows.of(indexed, masks)
        series = _typed_series((entry for entry in indexed if entry.position not in hidden.series), profile_type)
        if not series:
            return
        values: Counter[_Stack] = Counter()
        for batch in ProfileTableReader(source.read_section(PROFILES)).batches():
            _add_batch(values, hidden.without_stretches(batch), series, rows)
        partitions = {entry.id: StackResolver(entry) for entry in decode_symbols(source.read_section(SYMBOLS))}
        for stack, value in values.items():
            if stack.partition not in partitions:
                raise BadReference("profiles", -1, f"no symbols for partition {stack.partition}")
            yield partitions[stack.partition].functions(stack.id), value
    except BadObject as error:
        raise error.in_object(source.object_name) from error


def _typed_series(series: Iterable[IndexedSeries], profile_type: str) -> dict[int, IndexedSeries]:
    wanted = (PROFILE_TYPE.encode(), profile_type.encode())
    return {entry.position: entry for entry in series if wanted in entry.labels}


def _add_batch(values: Counter[_Stack], batch: pa.RecordBatch, series: dict[int, IndexedSeries], rows: _Rows) -> None:
    ids = batch.column("ID").storage
    times = batch.column("TimeNanos").cast(pa.int64()).to_numpy()
    partitions = batch.column("StacktracePartition").to_numpy()
    samples = batch.column(SAMPLES)
    offsets = samples.offsets.to_numpy()
    stack_ids, amounts = samples.values.field(0).to_numpy(), samples.values.field(1).to_numpy()
    for position, number in enumerate(batch.column("SeriesIndex").to_pylist()):
        entry = series.get(number)
        if entry is None or not rows.is_new(entry.fingerprint, int(times[position]), ids[position].as_py()):
            continue
        start, end = offsets[position], offsets[position + 1]
        _add_row(values, int(partitions[position]), stack_ids[start:end], amounts[start:end])


def _add_row(
    values: Counter[_Stack], partition: int, stack_ids: npt.NDArray[np.uint64], amounts: npt.NDArray[np.int64]
) -> None:
    for stack_id, amount in zip(stack_ids.tolist(), amounts.tolist(), strict=True):
        values[_Stack(partition, stack_id)] += amount
