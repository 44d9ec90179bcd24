"""Reader and writer of the container of a block: consecutive datasets, then the metadata footer.

``BlockReader`` reads sections with range requests. ``BlockWriter`` streams datasets to an object writer and computes
the checksum of the whole object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from engine.core.checksums import crc32c
from engine.core.errors import BadObject, Truncated
from engine.formats.profile_block.container.metadata import encode_footer, label_strings, read_footer
from engine.formats.profile_block.merge_model import WHOLE_DATASET_BYTES, DatasetSource, SectionData
from engine.formats.profile_block.model import (
    DATASET_INDEX,
    DATASET_PROFILES,
    BlockMeta,
    DatasetMeta,
    IndexedSeries,
    Labels,
)
from engine.formats.profile_block.series.series_index import decode_series_index, encode_series_index
from engine.storage.model import ObjectNotFound, ObjectStore, StorageError

TENANT_DATASET_LABEL = "__tenant_dataset__"
TENANT_DATASET_INDEX = "dataset_tsdb_index"
DATASET_INDEX_LABELS: tuple[Labels, ...] = (((TENANT_DATASET_LABEL, TENANT_DATASET_INDEX),),)


class ByteTarget(Protocol):
    """The target of a block: an ObjectWriter or a file open for writing."""

    def write(self, data: bytes, /) -> object: ...


class ObjectReader:
    """Reads ranges of an object of a known size; ``bytes_read`` and ``requests`` count its reads."""

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        self.key = key
        self.size = size
        self.bytes_read = 0
        self.requests = 0
        self._store = store

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes at an absolute offset. Raises Truncated if the object is shorter."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise self._truncated(offset, length, self.size)
        self.requests += 1
        try:
            data = self._store.get_range(self.key, offset, length) if length else b""
        except ObjectNotFound:
            raise
        except StorageError as error:
            # The error of a store does not tell a short object (permanent) from a temporary failure.
            if (size := self._store.head(self.key).size) < offset + length:
                raise self._truncated(offset, length, size) from error
            raise
        self.bytes_read += length
        return data

    def dataset_source(self, dataset: DatasetMeta) -> DatasetSource:
        """Return a dataset of format 0 as a source of a merge; a small one is read whole with the first read."""
        first, second, third = dataset.table_of_contents
        read = self.read if dataset.size > WHOLE_DATASET_BYTES else _WholeDataset(self, dataset).read
        return DatasetSource(
            object_name=self.key, table_of_contents=(first, second, third), size=dataset.size, read=read
        )

    def _truncated(self, offset: int, length: int, size: int) -> Truncated:
        reason = f"{length} bytes expected, the object has {size} bytes"
        return Truncated("container", offset, reason, self.key)


class BlockReader(ObjectReader):
    """Reads parts of a block by its metadata, whose ``size`` must be that of the object."""

    def __init__(self, store: ObjectStore, key: str, meta: BlockMeta) -> None:
        super().__init__(store, key, meta.size)
        self.meta = meta

    @classmethod
    def open(cls, store: ObjectStore, key: str) -> BlockReader:
        """Open a block and read its footer. Raises BadObject, which names the object."""
        size = store.head(key).size
        try:
            meta = read_footer(lambda offset, length: store.get_range(key, offset, length), size)
        except BadObject as error:
            raise error.in_object(key) from error
        return cls(store, key, meta)

    def read_section(self, dataset: DatasetMeta, section: int) -> bytes:
        """Return a whole section of a dataset."""
        return self.read(*dataset.section_bounds()[section])

    def read_dataset_index(self, tenant: str) -> list[IndexedSeries] | None:
        """Return the tenant's dataset index, whose ``position`` is that of a dataset; None if the block has none."""
        for dataset in self.meta.datasets:
            if dataset.format == DATASET_INDEX and dataset.tenant == tenant:
                try:
                    return decode_series_index(self.read_section(dataset, 0))
                except BadObject as error:
                    raise error.in_object(self.key) from error
        return None


class _WholeDataset:
    """Serves the reads of a small dataset from one range request, which the first read sends."""

    def __init__(self, reader: ObjectReader, dataset: DatasetMeta) -> None:
        self._reader = reader
        self._start = dataset.table_of_contents[0]
        self._size = dataset.size
        self._data: memoryview | None = None

    def read(self, offset: int, length: int) -> bytes:
        start = offset - self._start
        if start < 0 or length < 0 or start + length > self._size:
            raise Truncated("container", offset, f"{length} bytes are outside of the dataset", self._reader.key)
        if self._data is None:
            self._data = memoryview(self._reader.read(self._start, self._size))
        return bytes(self._data[start : start + length])


class BlockWriter:
    """Writes a block to ``target``: datasets in the order of addition, then the footer with ``finish``.

    ``size`` and ``crc32c`` are those of the data written so far. The caller opens and commits the target.
    """

    def __init__(self, target: ByteTarget) -> None:
        self.size = 0
        self.crc32c = 0
        self.datasets: list[DatasetMeta] = []
        self._target = target
        self._tenant_series: dict[str, list[IndexedSeries]] = {}

    def add_dataset(
        self,
        *,
        tenant: str,
        name: str,
        labels: Sequence[Labels],
        min_time_ms: int,
        max_time_ms: int,
        sections: Sequence[SectionData],
        series: Iterable[IndexedSeries],
    ) -> DatasetMeta:
        """Append a dataset of format 0 (profiles, series index, symbols) with the ``series`` of its series index."""
        position = len(self.datasets)
        dataset = DatasetMeta(
            tenant=tenant,
            name=name,
            min_time_ms=min_time_ms,
            max_time_ms=max_time_ms,
            table_of_contents=self._write_sections(section.chunks() for section in sections),
            size=sum(section.size for section in sections),
            labels=tuple(labels),
            format=DATASET_PROFILES,
        )
        self.datasets.append(dataset)
        indexed = self._tenant_series.setdefault(tenant, [])
        indexed += [IndexedSeries(entry.fingerprint, entry.labels, 0, 0, position) for entry in series]
        return dataset

    def add_dataset_index(self, tenant: str) -> DatasetMeta:
        """Append the dataset index of the tenant's datasets added so far."""
        data = encode_series_index(self._tenant_series.get(tenant, []))
        covered = [dataset for dataset in self.datasets if dataset.tenant == tenant]
        dataset = DatasetMeta(
            tenant=tenant,
            name="",
            min_time_ms=_widest(min, (dataset.min_time_ms for dataset in covered)),
            max_time_ms=_widest(max, (dataset.max_time_ms for dataset in covered)),
            table_of_contents=self._write_sections([[data]]),
            size=len(data),
            labels=DATASET_INDEX_LABELS,
            format=DATASET_INDEX,
        )
        self.datasets.append(dataset)
        return dataset

    def finish(
        self,
        *,
        id: str,
        tenant: str,
        shard: int,
        compaction_level: int,
        created_by: str = "",
        string_table: Sequence[str] | None = None,
    ) -> BlockMeta:
        """Write the footer and return the metadata, including ``size``.

        ``string_table`` determines the order of the stored strings; None is the order of the datasets.
        """
        strings = dict.fromkeys(["", *(string_table or ()), tenant, created_by])
        for dataset in self.datasets:
            strings.update(dict.fromkeys((dataset.tenant, dataset.name, *label_strings(dataset.labels))))
        meta = BlockMeta(
            id=id,
            tenant=tenant,
            shard=shard,
            compaction_level=compaction_level,
            min_time_ms=_widest(min, (dataset.min_time_ms for dataset in self.datasets)),
            max_time_ms=_widest(max, (dataset.max_time_ms for dataset in self.datasets)),
            datasets=tuple(self.datasets),
            string_table=tuple(strings),
            created_by=created_by,
            metadata_offset=self.size,
        )
        self._write(encode_footer(meta))
        return replace(meta, size=self.size)

    def _write_sections(self, sections: Iterable[Iterable[bytes]]) -> tuple[int, ...]:
        starts = []
        for chunks in sections:
            starts.append(self.size)
            for chunk in chunks:
                self._write(chunk)
        return tuple(starts)

    def _write(self, data: bytes) -> None:
        self._target.write(data)
        self.size += len(data)
        self.crc32c = crc32c(data, self.crc32c)


class _Chooser(Protocol):
    def __call__(self, times: Iterable[int], /, *, default: int) -> int: ...


def _widest(choose: _Chooser, times: Iterable[int]) -> int:
    """Return the minimum or maximum time; 0 means unset."""
    return choose((time for time in times if time), default=0)
