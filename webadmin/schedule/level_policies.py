"""When the blocks of a level make a job, for everybody or for one tenant: the nearest row wins.

The rows of everybody are few and read at once; those of tenants are read for the tenants that matter, and kept.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.planning.model import LevelPolicy
from webadmin.database.dialect import among, read_rows
from webadmin.schedule import models
from webadmin.schedule.errors import PolicyMissing

EVERYBODY = ""
COLUMNS = tuple(field.attname for field in models.LevelPolicy._meta.concrete_fields)


class LevelPolicies:
    """The policies as far as they were asked for."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, int], LevelPolicy] = {}
        self._known: set[str] = set()

    def load(self, tenants: Iterable[str]) -> None:
        """Read the rows of those tenants that are not known yet; at most one query."""
        missing = {EVERYBODY, *tenants} - self._known
        if missing:
            self._known |= missing
            wanted, values = among(models.LevelPolicy, "tenant", sorted(missing))
            for row in read_rows(models.LevelPolicy, COLUMNS, f"WHERE {wanted}", values):
                policy = models.LevelPolicy.from_db(None, COLUMNS, row)
                self._rows[policy.lane, policy.tenant, policy.level] = _policy(policy)

    def of(self, lane: str, tenant: str, level: int) -> LevelPolicy:
        """Return the policy of a queue. Raises PolicyMissing."""
        self.load([tenant])
        policy = self._rows.get((lane, tenant, level)) or self._rows.get((lane, EVERYBODY, level))
        if policy is None:
            raise PolicyMissing(f"lane {lane!r} has no policy for level {level}: add the row in the admin")
        return policy


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
