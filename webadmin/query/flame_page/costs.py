"""Cost of several queries together."""

from __future__ import annotations

from collections.abc import Sequence

from engine.query.model import PHASES, QueryCost, QueryReport


def merged_report(reports: Sequence[QueryReport]) -> QueryReport:
    """Return the sum of the reports of consecutive queries; a gap that two of them have is listed once."""
    costs = [report.cost for report in reports]
    cost = QueryCost(
        objects_opened=sum(cost.objects_opened for cost in costs),
        datasets_read=sum(cost.datasets_read for cost in costs),
        requests=sum(cost.requests for cost in costs),
        bytes_read=sum(cost.bytes_read for cost in costs),
        rows_read=sum(cost.rows_read for cost in costs),
        seconds=sum(cost.seconds for cost in costs),
        phases={name: sum(cost.phases[name] for cost in costs) for name in PHASES},
    )
    damage = {(one.key, one.tenant, one.service): one for report in reports for one in report.damage}
    return QueryReport(cost=cost, damage=tuple(damage.values()))
