"""Maintain the list of services for queries, and the longest time range of a dataset of each.

It runs before the transaction that inserts blocks: a service without blocks or a span that is too long does no harm.
"""

from __future__ import annotations

from webadmin.base.database.dialect import among, read_rows
from webadmin.lanes.profiles.models import TenantService

KEYS_PER_QUERY = 200
SHORTEST_SPAN_MS = 1 << 10

KEY_COLUMNS = ("tenant_id", "name_id", "label_sets_id")
ServiceKey = tuple[int, int, int]
"""Row ids of tenant, dataset name and label sets."""


def intern_services(spans: dict[ServiceKey, int]) -> None:
    """Insert missing services, and raise spans that are shorter than given."""
    known = _known_spans(sorted(spans))
    missing = [
        TenantService(tenant_id=tenant, name_id=name, label_sets_id=label_sets, span_max_ms=_rounded(span))
        for (tenant, name, label_sets), span in sorted(spans.items())
        if (tenant, name, label_sets) not in known
    ]
    if missing:
        TenantService.objects.bulk_create(missing, ignore_conflicts=True)
        # A concurrent transaction may have inserted it with a shorter span.
        known |= _known_spans([key for key in sorted(spans) if key not in known])
    for key, span in sorted(spans.items()):
        if known[key][1] < span:
            row_id, wanted = known[key][0], _rounded(span)
            TenantService.objects.filter(id=row_id, span_max_ms__lt=wanted).update(span_max_ms=wanted)


def _known_spans(keys: list[ServiceKey]) -> dict[ServiceKey, tuple[int, int]]:
    """Return row id and span of the services in the list."""
    found: dict[ServiceKey, tuple[int, int]] = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        part = keys[start : start + KEYS_PER_QUERY]
        each = [tuple({key[place] for key in part}) for place in range(len(KEY_COLUMNS))]
        parts = [among(TenantService, column, ids) for column, ids in zip(KEY_COLUMNS, each, strict=True)]
        wanted, values = " AND ".join(part for part, _ in parts), [value for _, own in parts for value in own]
        rows = read_rows(TenantService, (*KEY_COLUMNS, "id", "span_max_ms"), f"WHERE {wanted}", values)
        found |= {(tenant, name, labels): (id, span) for tenant, name, labels, id, span in rows}
    return found


def _rounded(span_ms: int) -> int:
    """Return the span rounded up to a power of two, so that it rarely changes."""
    return max(SHORTEST_SPAN_MS, 1 << (span_ms - 1).bit_length() if span_ms > 0 else 0)
