"""The fields of a level policy and their allowed ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.schedule.errors import PolicyRefused

DAY_SECONDS = 86_400
BYTES_MAX = 1 << 50
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """Range (inclusive) and label of a field; ``is_optional``: 0 disables it."""

    low: int
    high: int
    meaning: str
    is_optional: bool = False


POLICY_RULES: Mapping[str, PolicyRule] = {
    "blocks_max": PolicyRule(1, 1000, "maximum blocks of a job"),
    "age_seconds": PolicyRule(1, 30 * DAY_SECONDS, "age at which an incomplete job is planned"),
    "spread_seconds": PolicyRule(1, 30 * DAY_SECONDS, "maximum spread of the creation times of a job's blocks"),
    "bytes_max": PolicyRule(MIB, BYTES_MAX, "maximum source bytes of a job; 0: unlimited", is_optional=True),
    "result_bytes_max": PolicyRule(MIB, BYTES_MAX, "maximum bytes of a result block; 0: unlimited", is_optional=True),
    "partial_batch_bytes": PolicyRule(
        MIB, BYTES_MAX, "bytes below which a shard's partial batch is merged with those of other shards; 0: never", True
    ),
    "partial_batch_age_seconds": PolicyRule(0, 30 * DAY_SECONDS, "minimum age of blocks of other shards that join"),
}


def check_policy(values: Mapping[str, int]) -> None:
    """Raise PolicyRefused unless the values are complete, in range and consistent."""
    if unknown := set(values) - set(POLICY_RULES):
        raise PolicyRefused(f"unknown policy field {min(unknown)!r}: expected {', '.join(POLICY_RULES)}")
    if missing := set(POLICY_RULES) - set(values):
        raise PolicyRefused(f"missing policy fields: {', '.join(sorted(missing))}")
    for name, value in values.items():
        rule = POLICY_RULES[name]
        if not (rule.low <= value <= rule.high or (rule.is_optional and value == 0)):
            off = "0 or " if rule.is_optional else ""
            raise PolicyRefused(f"{name} of {value} is outside {off}{rule.low} to {rule.high}")
    if values["partial_batch_age_seconds"] > values["age_seconds"]:
        raise PolicyRefused(
            f"partial_batch_age_seconds of {values['partial_batch_age_seconds']} is more than the age of "
            f"{values['age_seconds']} "
            "at which blocks are merged without those of other shards"
        )
