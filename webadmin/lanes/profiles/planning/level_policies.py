"""When the blocks of a level make a job: a tenant's row takes precedence over the default row.

The default rows are few and read at once; rows of tenants are read on demand and cached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engine.lanes.profiles.plan.model import LevelPolicy
from webadmin.base.database.dialect import among, as_instance, request_rows
from webadmin.lanes.profiles import level_models as models
from webadmin.schedule.errors import PolicyMissing

ALL_TENANTS = ""
COLUMNS = tuple(field.attname for field in models.LevelPolicy._meta.concrete_fields)


def request_policies(tenants: Iterable[str]) -> Callable[[], list[tuple[Any, ...]]]:
    """Query the rows of these tenants."""
    wanted, values = among(models.LevelPolicy, "tenant", sorted(tenants))
    return request_rows(models.LevelPolicy, COLUMNS, f"WHERE {wanted}", values)


class LevelPolicies:
    """The policies read so far.

    ``rows`` are the default ones if they were read already; ``has_others`` is whether tenants may have rows of their
    own.
    """

    def __init__(self, rows: Iterable[tuple[Any, ...]] | None = None, *, has_others: bool = True) -> None:
        self._rows: dict[tuple[str, str, int], LevelPolicy] = {}
        self._known: set[str] = set()
        self._has_others = has_others
        if rows is not None:
            self._known.add(ALL_TENANTS)
            self._keep(rows)

    def load(self, tenants: Iterable[str]) -> None:
        """Read the rows of tenants that are not cached; at most one query."""
        missing = {ALL_TENANTS, *(tenants if self._has_others else ())} - self._known
        if missing:
            self._known |= missing
            self._keep(request_policies(missing)())

    def of(self, lane: str, tenant: str, level: int) -> LevelPolicy:
        """Return the policy of a queue. Raises PolicyMissing."""
        self.load([tenant])
        policy = self._rows.get((lane, tenant, level)) or self._rows.get((lane, ALL_TENANTS, level))
        if policy is None:
            raise PolicyMissing(f"lane {lane!r} has no policy for level {level}: add the row in the admin")
        return policy

    def _keep(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for row in rows:
            policy = as_instance(models.LevelPolicy, COLUMNS, row)
            self._rows[policy.lane, policy.tenant, policy.level] = _policy(policy)


def _policy(row: models.LevelPolicy) -> LevelPolicy:
    return LevelPolicy(
        blocks_max=row.blocks_max,
        age_ms=row.age_seconds * 1000,
        spread_ms=row.spread_seconds * 1000,
        bytes_max=row.bytes_max,
        result_bytes_max=row.result_bytes_max,
        partial_batch_bytes=row.partial_batch_bytes,
        partial_batch_age_ms=row.partial_batch_age_seconds * 1000,
    )
