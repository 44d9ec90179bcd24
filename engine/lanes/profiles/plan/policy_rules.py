"""Which numbers the policy of a level consists of, and between which values an operator may set them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.schedule.errors import PolicyRefused

DAY_SECONDS = 86_400
BYTES_MAX = 1 << 50
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """Bounds of one number, and what it says in words; ``is_optional``: 0 switches it off."""

    low: int
    high: int
    meaning: str
    is_optional: bool = False


POLICY_RULES: Mapping[str, PolicyRule] = {
    "blocks_max": PolicyRule(1, 1000, "blocks of a job at most"),
    "age_seconds": PolicyRule(1, 30 * DAY_SECONDS, "age at which fewer blocks are merged too"),
    "spread_seconds": PolicyRule(1, 30 * DAY_SECONDS, "creation times of a job's blocks lie within"),
    "bytes_max": PolicyRule(MIB, BYTES_MAX, "source bytes of a job at most; 0: any", is_optional=True),
    "result_bytes_max": PolicyRule(MIB, BYTES_MAX, "bytes of a result block at most; 0: any", is_optional=True),
    "remnant_bytes": PolicyRule(
        MIB, BYTES_MAX, "fewer bytes than this in a shard are merged with those of other shards; 0: never", True
    ),
    "remnant_age_seconds": PolicyRule(0, 30 * DAY_SECONDS, "age from which another shard's blocks may join"),
}


def check_policy(values: Mapping[str, int]) -> None:
    """Raise PolicyRefused unless these are all numbers of a policy that can be kept."""
    if unknown := set(values) - set(POLICY_RULES):
        raise PolicyRefused(f"a policy has no {min(unknown)!r}: it has {', '.join(POLICY_RULES)}")
    if missing := set(POLICY_RULES) - set(values):
        raise PolicyRefused(f"a policy needs {', '.join(sorted(missing))}")
    for name, value in values.items():
        rule = POLICY_RULES[name]
        if not (rule.low <= value <= rule.high or (rule.is_optional and value == 0)):
            off = "0 or " if rule.is_optional else ""
            raise PolicyRefused(f"{name} of {value} is outside {off}{rule.low} to {rule.high}")
    if values["remnant_age_seconds"] > values["age_seconds"]:
        raise PolicyRefused(
            f"remnant_age_seconds of {values['remnant_age_seconds']} is more than the age of {values['age_seconds']} "
            "at which blocks are merged without those of other shards"
        )
