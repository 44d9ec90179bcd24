"""Decode and validate queries over HTTP, and encode their answers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from engine.formats.profile_block.selectors import InvalidSelector, parse_selector
from webadmin.base.access.errors import TenantNotAllowed
from webadmin.base.access.scopes import ANY_TENANT
from webadmin.lanes.profiles.errors import InvalidIndexQuery
from webadmin.lanes.profiles.queries import BlockFound, BlockPage, DatasetFound, IndexQuery

FIELDS = {"tenants", "start_ms", "end_ms", "selector", "labels", "by_name", "datasets_max", "cursor"}
DATASETS_MAX = 200_000
"""Maximum number of datasets of one answer or page.

An answer is built in memory, about half a kilobyte per dataset. A request may set a lower limit.
"""


def query_from_json(body: Any, allowed: Collection[str]) -> IndexQuery:
    """Return the query of a credential for ``allowed`` tenants. Raises InvalidIndexQuery or TenantNotAllowed."""
    if not isinstance(body, dict):
        raise InvalidIndexQuery("the body is not a JSON object")
    if unknown := sorted(body.keys() - FIELDS):
        raise InvalidIndexQuery(f"unknown field {unknown[0]!r}")
    tenants = _names(body, "tenants") if "tenants" in body else tuple(sorted(set(allowed) - {ANY_TENANT}))
    for tenant in tenants:
        if ANY_TENANT not in allowed and tenant not in allowed:
            raise TenantNotAllowed(f"the credential is not for tenant {tenant!r}")
    selector = body.get("selector", "")
    if not isinstance(selector, str):
        raise InvalidIndexQuery("selector is not a text")
    try:
        matchers = parse_selector(selector)
    except InvalidSelector as error:
        raise InvalidIndexQuery(f"selector: {error}") from error
    query = IndexQuery(
        tenants=tenants,
        start_ms=_time(body, "start_ms"),
        end_ms=_time(body, "end_ms"),
        matchers=matchers,
        labels=_names(body, "labels") if "labels" in body else (),
        by_name=_flag(body, "by_name"),
        datasets_max=_datasets_max(body),
    )
    query.check()
    return query


def cursor_from_json(body: Any) -> str | None:
    """Return the cursor of a request for a page, "" for the first; None if a complete answer is requested.

    Raises InvalidIndexQuery.
    """
    if "cursor" not in body:
        return None
    if not isinstance(body["cursor"], str):
        raise InvalidIndexQuery("cursor is not a text")
    return body["cursor"]


def answer_to_json(blocks: list[BlockFound], unknown_tenants: Sequence[str]) -> dict[str, Any]:
    """Return the answer as JSON."""
    return {"blocks": [_block_to_json(block) for block in blocks], "unknown_tenants": list(unknown_tenants)}


def page_to_json(page: BlockPage, unknown_tenants: Sequence[str]) -> dict[str, Any]:
    """Return a page of an answer as JSON."""
    return answer_to_json(page.blocks, unknown_tenants) | {"next": page.cursor}


def _names(body: dict[str, Any], field: str) -> tuple[str, ...]:
    names = body[field]
    if not isinstance(names, list) or not all(isinstance(name, str) and name and "\0" not in name for name in names):
        raise InvalidIndexQuery(f"{field} is not a list of names")
    return tuple(dict.fromkeys(names))


def _time(body: dict[str, Any], field: str) -> int:
    value = body.get(field)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidIndexQuery(f"{field} is not a whole number of unix milliseconds")
    return value


def _datasets_max(body: dict[str, Any]) -> int:
    value = body.get("datasets_max", DATASETS_MAX)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= DATASETS_MAX:
        raise InvalidIndexQuery(f"datasets_max is not a whole number from 1 to {DATASETS_MAX}")
    return value


def _flag(body: dict[str, Any], field: str) -> bool:
    value = body.get(field, False)
    if not isinstance(value, bool):
        raise InvalidIndexQuery(f"{field} is neither true nor false")
    return value


def _block_to_json(block: BlockFound) -> dict[str, Any]:
    return {
        "id": block.id,
        "tenant": block.tenant,
        "shard": block.shard,
        "level": block.level,
        "object_key": block.object_key,
        "size": block.size,
        "min_time_ms": block.min_time_ms,
        "max_time_ms": block.max_time_ms,
        "datasets": [_dataset_to_json(dataset) for dataset in block.datasets],
    }


def _dataset_to_json(dataset: DatasetFound) -> dict[str, Any]:
    return {
        "position": dataset.position,
        "tenant": dataset.tenant,
        "name": dataset.name,
        "format": dataset.format,
        "min_time_ms": dataset.min_time_ms,
        "max_time_ms": dataset.max_time_ms,
        "size": dataset.size,
        "table_of_contents": list(dataset.table_of_contents),
        "masks_applied": dataset.masks_applied,
        "masks": [mask.to_json() for mask in dataset.masks],
        "labels": [dict(labels) for labels in dataset.labels],
    }
