"""The query before and after compaction: which functions of a service use the most?"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine.formats.profile_block.container.container import ObjectReader
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.merge_model import SERIES_INDEX
from engine.formats.profile_block.model import DATASET_PROFILES, BlockMeta, DatasetMeta
from engine.formats.profile_block.series.series_index import decode_series_index
from engine.query.top_functions import FunctionValue, top_functions
from engine.storage import ObjectStore
from webadmin.embedded.demo.figures import LiveBlock
from webadmin.embedded.demo.foreign import NothingToCompact

TOP_COUNT = 10
BLOCKS_READ = 100  # Maximum blocks read to find the profile types; each costs a read.
PROFILE_TYPE = "__profile_type__"
TYPES_PREFERRED = ("cpu:nanoseconds", "wall:nanoseconds", "nanoseconds", "inuse_space:bytes", "bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A tenant, one of its services, and a profile type ``<name>:<type>:<unit>:<period type>:<period unit>``."""

    tenant: str
    service: str
    profile_type: str

    @property
    def unit(self) -> str:
        """Return the unit of the values, for example nanoseconds."""
        parts = self.profile_type.split(":")
        return parts[2] if len(parts) > 2 else ""

    @property
    def text(self) -> str:
        """Return the query as text."""
        return f"{self.service} of tenant {self.tenant}, {self.profile_type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Result of a query: top functions, total, number of profiles, and cost."""

    functions: tuple[FunctionValue, ...]
    total_value: int
    profiles: int
    objects_opened: int
    requests: int
    bytes_read: int
    seconds: float


def run_question(question: Question, blocks: Sequence[LiveBlock], store: ObjectStore) -> Answer:
    """Run the query on these blocks. Raises BadObject naming an object that cannot be read."""
    started = time.monotonic()
    described = [(block.key, _metadata(block)) for block in blocks]
    visible = {block.key: block.visible for block in blocks}
    found = top_functions(
        store, described, question.tenant, question.service, question.profile_type, TOP_COUNT, visible=visible
    )
    return Answer(
        functions=found.functions,
        total_value=found.total_value,
        profiles=found.statistics.rows_read,
        objects_opened=found.statistics.objects_opened,
        requests=found.statistics.requests,
        bytes_read=found.statistics.bytes_read,
        seconds=time.monotonic() - started,
    )


def choose_question(blocks: Sequence[LiveBlock], store: ObjectStore) -> Question:
    """Choose the query with ``choose_dataset`` and ``choose_profile_type``."""
    tenant, service = choose_dataset(blocks)
    holders = [block for block in blocks if any(True for _ in _datasets(block, tenant, service))]
    types = {one for block in holders[:BLOCKS_READ] for one in _profile_types(block, tenant, service, store)}
    return Question(tenant=tenant, service=service, profile_type=choose_profile_type(sorted(types)))


def time_range_ms(question: Question, blocks: Iterable[LiveBlock]) -> tuple[int, int]:
    """Return the times of the first and the last profile of the query's service, from the blocks' metadata."""
    held = [dataset for block in blocks for dataset in _datasets(block, question.tenant, question.service)]
    return min(dataset.min_time_ms for dataset in held), max(dataset.max_time_ms for dataset in held)


def choose_dataset(blocks: Iterable[LiveBlock]) -> tuple[str, str]:
    """Return tenant and service of the dataset in most objects; of several, the one with the most bytes.

    Raises NothingToCompact if no block has profiles.
    """
    objects: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for block in blocks:
        for dataset in _visible(block):
            objects[dataset.tenant, dataset.name] += 1
            sizes[dataset.tenant, dataset.name] += dataset.size
    if not objects:
        raise NothingToCompact("no object holds profiles of a service")
    return max(objects, key=lambda key: (objects[key], sizes[key], key))


def choose_profile_type(types: Sequence[str]) -> str:
    """Return the preferred profile type: CPU time, then time, then memory, then any other."""
    for wished in TYPES_PREFERRED:
        for one in sorted(types):
            if wished in one:
                return one
    return min(types)


def _datasets(block: LiveBlock, tenant: str, service: str) -> Iterator[DatasetMeta]:
    for dataset in _visible(block):
        if (dataset.tenant, dataset.name) == (tenant, service):
            yield dataset


def _visible(block: LiveBlock) -> Iterator[DatasetMeta]:
    datasets = decode_metadata(block.metadata).datasets
    return (datasets[n] for n in sorted(block.visible) if datasets[n].format == DATASET_PROFILES)


def _profile_types(block: LiveBlock, tenant: str, service: str, store: ObjectStore) -> Iterator[str]:
    """Yield the profile types of a service in the block, read from its series, because old metadata has none."""
    for dataset in _datasets(block, tenant, service):
        source = ObjectReader(store, block.key, block.size).dataset_source(dataset)
        yield from _types(source.read_section(SERIES_INDEX))


def _types(series_index: bytes) -> Iterator[str]:
    for series in decode_series_index(series_index):
        yield from (value.decode() for name, value in series.labels if name == PROFILE_TYPE.encode())


def _metadata(block: LiveBlock) -> BlockMeta:
    return replace(decode_metadata(block.metadata), size=block.size)
