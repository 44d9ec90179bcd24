"""Job names: the published vectors, and what the name depends on."""

from __future__ import annotations

import pytest

from engine.schedule.job_names import job_name

FIRST, SECOND = "01J8E68YM0Z2RRKCY9SYGX3054", "01J8E68YM0Z2RRKCY9SYGX3055"

VECTORS = [
    ("2,3,5", "A", 1, 0, "ffba6b12acb007e6-TA-S1-L0"),
    ("1,4,6", "B", 2, 0, "3860b3ec2cf5bfa3-TB-S2-L0"),
    ("0,7,9", "A", 0, 0, "6a1fee35d1568267-TA-S0-L0"),
    ("8,11,13", "A", 1, 0, "34d4246acbf55d05-TA-S1-L0"),
    ("10,12,14", "B", 2, 0, "5567ff0cdb349aaf-TB-S2-L0"),
    ("1,2,4", "A", 1, 0, "3567f9a8f34203a9-TA-S1-L0"),
    ("0,3", "B", 2, 1, "3254788b90b8fafc-TB-S2-L1"),
    ("1,3,5", "B", 2, 0, "5668d093d5b7cc2f-TB-S2-L0"),
    ("2,6,7", "A", 1, 0, "69cebc117138be9-TA-S1-L0"),
    ("1", "A", 1, 0, "b7b41276360564d4-TA-S1-L0"),
    (f"{FIRST},{SECOND}", "", 1, 0, "93379c1f4ad774-T-S1-L0"),
    (f"{SECOND},{FIRST}", "tenant-a", 7, 2, "18de18209763b186-Ttenant-a-S7-L2"),
]


@pytest.mark.parametrize(("ids", "tenant", "shard", "level", "name"), VECTORS)
def test_names_are_those_of_the_published_vectors(ids: str, tenant: str, shard: int, level: int, name: str) -> None:
    assert job_name(ids.split(","), tenant=tenant, shard=shard, level=level) == name
