"""Client side of ``POST /api/v1/blocks/query``: which blocks hold data for a query.

The answer is paginated; a block may be in several pages, each time with other datasets. For readers without a database.
Every value of the answer is validated; the reader of an object checks the offsets of sections.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from engine.lanes.profiles.jobs import DeleteMask
from engine.protocol.fields import COUNT_MAX, Fields
from engine.query.model import INDEX_LABELS, TIME_MAX_MS, QueryBlock, QueryDataset, Question, profile_types_of

BLOCKS_MAX = 1_000_000
DATASETS_MAX = 100_000
SECTIONS_MAX = 16
MASKS_MAX = 10_000
NAME_CHARS_MAX = 10_000
SELECTOR_CHARS_MAX = 10_000
CURSOR_CHARS_MAX = 10_000
DATASETS_PER_PAGE = 50_000
"""About half a kilobyte each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSnapshot:
    """The index snapshot: the live blocks at one moment, with the datasets that may match a query.

    ``cursor`` is the cursor of the next page, "" after the last.
    """

    blocks: tuple[QueryBlock, ...]
    unknown_tenants: tuple[str, ...] = ()
    cursor: str = ""


def query_to_json(tenant: str, question: Question, cursor: str = "") -> dict[str, Any]:
    """Return the request for a page of blocks; ``cursor`` "" is the first page. The range must not end before 1970."""
    return {
        "tenants": [tenant],
        "start_ms": max(question.start_ms, 0),
        "end_ms": min(question.end_ms, TIME_MAX_MS),
        "selector": "{" + ",".join(map(str, question.index_matchers)) + "}",
        "labels": list(INDEX_LABELS),
        "by_name": True,
        "datasets_max": DATASETS_PER_PAGE,
        "cursor": cursor,
    }


def index_snapshot_from_json(data: Any, question: Question) -> IndexSnapshot:
    """Return the validated answer without datasets that cannot match. Raises InvalidMessage."""
    fields = Fields.of(data, "answer")
    blocks = (_block(block, question) for block in fields.objects("blocks", BLOCKS_MAX))
    unknown = fields.items("unknown_tenants", BLOCKS_MAX, default=())
    return IndexSnapshot(
        blocks=tuple(block for block in blocks if block.datasets),
        unknown_tenants=tuple(map(str, unknown)),
        cursor=fields.text("next", CURSOR_CHARS_MAX, default=""),
    )


def join_pages(pages: Iterable[IndexSnapshot]) -> IndexSnapshot:
    """Return the union of pages: each block once, at its first position, with its datasets sorted by position."""
    blocks: dict[str, QueryBlock] = {}
    unknown: tuple[str, ...] = ()
    for page in pages:
        unknown = page.unknown_tenants
        for block in page.blocks:
            known = blocks.get(block.key)
            datasets = sorted((*known.datasets, *block.datasets), key=_position) if known else block.datasets
            blocks[block.key] = QueryBlock(key=block.key, size=block.size, datasets=tuple(datasets))
    return IndexSnapshot(blocks=tuple(blocks.values()), unknown_tenants=unknown)


def _position(dataset: QueryDataset) -> int:
    return dataset.position


def _block(fields: Fields, question: Question) -> QueryBlock:
    datasets = (_dataset(dataset) for dataset in fields.objects("datasets", DATASETS_MAX))
    return QueryBlock(
        key=fields.text("object_key", NAME_CHARS_MAX, empty=False),
        size=fields.integer("size", 0, COUNT_MAX),
        datasets=tuple(dataset for dataset in datasets if question.may_be_in(dataset)),
    )


def _dataset(fields: Fields) -> QueryDataset:
    label_sets = (label_set.values.items() for label_set in fields.objects("labels", COUNT_MAX))
    return QueryDataset(
        position=fields.integer("position", 0, DATASETS_MAX),
        tenant=fields.text("tenant", NAME_CHARS_MAX),
        name=fields.text("name", NAME_CHARS_MAX),
        format=fields.integer("format", 0, COUNT_MAX),
        min_time_ms=fields.integer("min_time_ms", -COUNT_MAX, COUNT_MAX),
        max_time_ms=fields.integer("max_time_ms", -COUNT_MAX, COUNT_MAX),
        table_of_contents=_whole_numbers(fields, "table_of_contents"),
        size=fields.integer("size", 0, COUNT_MAX),
        profile_types=profile_types_of(tuple(label_set) for label_set in label_sets),
        masks=tuple(_mask(mask) for mask in fields.objects("masks", MASKS_MAX)),
    )


def _whole_numbers(fields: Fields, name: str) -> tuple[int, ...]:
    values = fields.items(name, SECTIONS_MAX)
    if not all(isinstance(value, int) and 0 <= value <= COUNT_MAX for value in values):
        raise fields.error(name, "whole numbers are expected")
    return tuple(values)


def _mask(fields: Fields) -> DeleteMask:
    times = {
        name: None if fields.values.get(name) is None else fields.integer(name, -COUNT_MAX, COUNT_MAX)
        for name in ("from_ms", "until_ms")
    }
    return DeleteMask(
        index=fields.integer("index", 0, COUNT_MAX),
        tenant=fields.text("tenant", NAME_CHARS_MAX),
        service=fields.text("service", NAME_CHARS_MAX, default=""),
        selector=fields.text("selector", SELECTOR_CHARS_MAX, default=""),
        **times,
    )
