"""Split the data of a query into shares for independent readers.

Equal rows count once, so all copies of a row must be in one share. Equal rows have one service, time and series, so a
share belongs to one service and has either an exclusive time range or a part of the series in a range. Time is split
where few datasets are on both sides, because these are read twice. Ranges that cannot be split by time, such as long
blocks of several shards, are split by series: every part opens all datasets and reads its own rows.

No I/O; deterministic.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.query.model import TIME_MAX_MS, QueryBlock, QueryDataset, Question, profile_datasets

SHARE_BYTES = 4 << 20
"""Target source bytes of a share: about a million samples, some seconds of work."""
OPEN_BYTES = 16 << 10
"""Cost of opening a dataset, in source bytes."""
READ_TWICE = 1 / 4
"""Maximum fraction of a share's bytes that the next share reads too."""
PARTS_MAX = 256
LISTS_MAX = 10_000
"""Maximum number of lists, all of which a Spark driver tracks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The rows from ``start_ms`` to ``end_ms`` (inclusive) of the given datasets, all of one service.

    It is part ``part`` of ``parts`` of their series; the series of the largest dataset determine the split. ``weight``
    is its estimated source bytes.
    """

    blocks: tuple[QueryBlock, ...]
    start_ms: int
    end_ms: int
    weight: int
    part: int = 0
    parts: int = 1

    @property
    def largest(self) -> tuple[QueryBlock, QueryDataset]:
        """Return the dataset whose series determine the split into parts."""
        datasets = [(block, dataset) for block in self.blocks for dataset in block.datasets]
        return max(datasets, key=lambda pair: (pair[1].size, pair[0].key, pair[1].position))


@dataclass(frozen=True, slots=True, order=True)
class _Span:
    """A dataset to read, at ``order`` in the list of all; times are clipped to the question's."""

    start_ms: int
    end_ms: int
    order: int
    weight: int


def cut_shares(blocks: Sequence[QueryBlock], question: Question, share_bytes: int = SHARE_BYTES) -> list[Share]:
    """Return the shares of a query, service by service; every matching row is in exactly one."""
    items = [(block, dataset) for block in blocks for dataset in profile_datasets(block) if question.may_be_in(dataset)]
    services: defaultdict[tuple[str, str], list[_Span]] = defaultdict(list)
    for order, (_, dataset) in enumerate(items):
        services[dataset.tenant, dataset.name].append(_span(dataset, order, question))
    shares = []
    for service in sorted(services):
        for start_ms, end_ms, spans in _cut_time(sorted(services[service]), question, share_bytes):
            weight = sum(span.weight for span in spans)
            parts = _parts(weight, len(spans), share_bytes)
            own = _blocks([items[order] for order in sorted(span.order for span in spans)])
            shares += [
                Share(blocks=own, start_ms=start_ms, end_ms=end_ms, weight=weight // parts, part=part, parts=parts)
                for part in range(parts)
            ]
    return shares


def gather_shares(
    shares: Sequence[Share], share_bytes: int = SHARE_BYTES, count_max: int = 10_000
) -> list[list[Share]]:
    """Combine adjacent light shares into at most ``count_max`` non-empty lists."""
    enough = max(share_bytes, -(-sum(share.weight for share in shares) // count_max) * 2)
    gathered: list[list[Share]] = []
    weight = 0
    for share in shares:
        if gathered and weight + share.weight <= enough:
            gathered[-1].append(share)
            weight += share.weight
        else:
            gathered.append([share])
            weight = share.weight
    return gathered


def _span(dataset: QueryDataset, order: int, question: Question) -> _Span:
    start_ms, end_ms = question.start_ms, question.end_ms
    if dataset.max_time_ms != 0:
        start_ms, end_ms = max(start_ms, dataset.min_time_ms), min(end_ms, dataset.max_time_ms)
    return _Span(start_ms, end_ms, order, dataset.size + OPEN_BYTES)


def _cut_time(spans: Sequence[_Span], question: Question, share_bytes: int) -> Iterable[tuple[int, int, list[_Span]]]:
    """Yield ranges that cover the query's range, each with the spans that overlap it; ``spans`` are sorted."""
    start_ms = max(question.start_ms, -TIME_MAX_MS)
    own: list[_Span] = []
    weight = 0
    open_: list[tuple[int, int, _Span]] = []
    open_weight = 0
    for span in spans:
        while open_ and open_[0][0] < span.start_ms:
            open_weight -= heapq.heappop(open_)[2].weight
        if weight >= share_bytes and span.start_ms > start_ms and open_weight <= weight * READ_TWICE:
            yield start_ms, span.start_ms - 1, own
            start_ms, own, weight = span.start_ms, [each for _, _, each in open_], open_weight
        own.append(span)
        weight += span.weight
        heapq.heappush(open_, (span.end_ms, span.order, span))
        open_weight += span.weight
    if own:
        yield start_ms, question.end_ms, own


def _parts(weight: int, datasets: int, share_bytes: int) -> int:
    """Return the number of parts by series, limited because each part opens every dataset."""
    by_weight = -(-weight // share_bytes) if weight >= 2 * share_bytes else 1
    return max(1, min(by_weight, weight // (2 * OPEN_BYTES * datasets), PARTS_MAX))


def _blocks(items: Sequence[tuple[QueryBlock, QueryDataset]]) -> tuple[QueryBlock, ...]:
    """Return the blocks of these datasets, in order, each restricted to them."""
    by_key: dict[str, tuple[QueryBlock, list[QueryDataset]]] = {}
    for block, dataset in items:
        by_key.setdefault(block.key, (block, []))[1].append(dataset)
    return tuple(
        QueryBlock(key=key, size=block.size, datasets=tuple(datasets)) for key, (block, datasets) in by_key.items()
    )
