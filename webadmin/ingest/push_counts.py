"""Metrics of pushes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from webadmin.ingest.models import ACCEPTED, PushCount

ROWS_MAX = 2_000

Sample = tuple[tuple[str, ...], float]


def push_samples(tenants_max: int) -> Iterator[tuple[str, list[Sample]]]:
    """Yield the metrics of pushes by tenant.

    Only the ``tenants_max`` tenants with the most pushes have a name.
    """
    sums: dict[str, int] = defaultdict(int)
    rows = list(PushCount.objects.order_by("-count").values_list("tenant", "outcome", "count", "bytes")[:ROWS_MAX])
    for tenant, _, count, _ in rows:
        sums[tenant] += count
    shown = set(sorted(sums, key=lambda tenant: (-sums[tenant], tenant))[:tenants_max])
    kept = sorted(row for row in rows if row[0] in shown)
    yield "lithify_pushed_profiles_total", [((tenant, outcome), count) for tenant, outcome, count, _ in kept]
    accepted: list[Sample] = [((tenant,), float(size)) for tenant, outcome, _, size in kept if outcome == ACCEPTED]
    yield "lithify_pushed_bytes_total", accepted
