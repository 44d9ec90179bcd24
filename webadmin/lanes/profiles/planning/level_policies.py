"""When the blocks of a level make a job, for everybody or for one tenant: the nearest row wins.

The rows of everybody are few and read at once; those of tenants are read for the tenants that matter, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engine.lanes.profiles.plan.model import LevelPolicy
from webadmin.base.database.dialect import among, as_instance, ask_rows
from webadmin.lanes.profiles import level_models as models
from webadmin.schedule.errors import PolicyMissing

EVERYBODY = ""
COLUMNS = tuple(field.attname for field in models.LevelPolicy._meta.concrete_fields)


def ask_policies(tenants: Iterable[str]) -> Callable[[], list[tuple[Any, ...]]]:
    """Ask for the rows of these tenants."""
    wanted, values = among(models.LevelPolicy, "tenant", sorted(tenants))
    return ask_rows(models.LevelPolicy, COLUMNS, f"WHERE {wanted}", values)


class LevelPolicies:
    """The policies as far as they were asked for. ``rows`` are those of everybody, if they are known already;
    ``has_others`` says whether tenants may have some of their own."""

    def __init__(self, rows: Iterable[tuple[Any, ...]] | None = None, *, has_others: bool = True) -> None:
        self._rows: dict[tuple[str, str, int], LevelPolicy] = {}
        self._known: set[str] = set()
        self._has_others = has_others
        if rows is not None:
            self._known.add(EVERYBODY)
            self._keep(rows)

    def load(self, tenants: Iterable[str]) -> None:
        """Read the rows of those tenants that are not known yet; at most one query."""
        missing = {EVERYBODY, *(tenants if self._has_others else ())} - self._known
        if missing:
            self._known |= missing
            self._keep(ask_policies(missing)())

    def of(self, lane: str, tenant: str, level: int) -> LevelPolicy:
        """Return the policy of a queue. Raises PolicyMissing."""
        self.load([tenant])
        policy = self._rows.get((lane, tenant, level)) or self._rows.get((lane, EVERYBODY, level))
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
        remnant_bytes=row.remnant_bytes,
        remnant_age_ms=row.remnant_age_seconds * 1000,
    )
