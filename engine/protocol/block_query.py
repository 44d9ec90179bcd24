"""The question "which blocks hold this?" as it goes to the service (``POST /api/v1/blocks/query``), and its answer.

For readers without a database. Every value of the answer is checked before it is used; where a section lies is checked
against the object by who reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.profiles.query.model import INDEX_LABELS, TIME_MAX_MS, QueryBlock, QueryDataset, Question, profile_types_of
from engine.protocol.fields import COUNT_MAX, Fields
from engine.protocol.profile_jobs import DeleteMask

BLOCKS_MAX = 1_000_000
DATASETS_MAX = 100_000
SECTIONS_MAX = 16
MASKS_MAX = 10_000
NAME_CHARS_MAX = 10_000
SELECTOR_CHARS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The live blocks of one moment, with those of their datasets that a question may be about."""

    blocks: tuple[QueryBlock, ...]
    unknown_tenants: tuple[str, ...] = ()


def query_to_json(tenant: str, question: Question) -> dict[str, Any]:
    """Return the request for the blocks of a question; its range must not end before 1970."""
    return {
        "tenants": [tenant],
        "start_ms": max(question.start_ms, 0),
        "end_ms": min(question.end_ms, TIME_MAX_MS),
        "selector": "{" + ",".join(map(str, question.index_matchers)) + "}",
        "labels": list(INDEX_LABELS),
        "by_name": True,
    }


def look_from_json(data: Any, question: Question) -> Look:
    """Read the answer; datasets that the question cannot be about are left out. Raises InvalidMessage."""
    fields = Fields.of(data, "answer")
    blocks = (_block(block, question) for block in fields.objects("blocks", BLOCKS_MAX))
    unknown = fields.items("unknown_tenants", BLOCKS_MAX, default=())
    return Look(blocks=tuple(block for block in blocks if block.datasets), unknown_tenants=tuple(map(str, unknown)))


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
