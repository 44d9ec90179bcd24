"""A fleet of segment writers in three zones, datasets that write through it, rules, limits and pins, for pages."""

from __future__ import annotations

from engine.placement.build_rules import build_rules
from engine.placement.documents import encode_rules, encode_statistics
from engine.placement.model import PlacementRules
from engine.placement.statistics import DatasetStatistics, PlacementStatistics, ShardUsage
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.placement.models import Instance, RuleChange, RulesHead, RulesVersion
from webadmin.placement.operator_settings import operator_settings
from webadmin.placement.rule_changes import differences, rule_json
from webadmin.placement.services.decide_placement import change_limits, change_override
from webadmin.placement.services.instances import Registration, current_ring, leave, register_instance

ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
DATASETS = (
    ("acme", "checkout", 6_000, (3, 4, 5, 6, 7, 8)),
    ("acme", "a-service-with-a-rather-long-name-that-someone-chose-in-a-hurry", 900, (9, 10)),
    ("umbrella", "ingest", 2_500, (20, 21, 22)),
    ("initech", "tps-reports", 12, (30,)),
    ("zeta", "", 300, (40, 41, 42)),
)
CONTEXT = ActionContext(actor="operator", why="their shards were too hot last night")


def fill_placement() -> None:
    """Make it all; call it where the tables of placement are empty."""
    for number in range(12):
        address = f"http://10.0.{number}.7:4041"
        register_instance(
            Registration(name=f"writer-{number:02}", address=address, zone=ZONES[number % 3], build="0.1")
        )
    leave("writer-11")
    Instance.objects.filter(name="writer-10").update(state=Instance.State.LEAVING)
    change_limits(values={"tenant_shards": 24}, context=CONTEXT)
    change_limits(tenant="acme", values={"unit_bytes": 256 << 10, "load_balancing": "dynamic"}, context=CONTEXT)
    change_override(tenant="initech", dataset="tps-reports", values={"shards": [30, 31]}, context=CONTEXT)
    change_override(tenant="zeta", dataset="", values={"dataset_shards": 3}, context=CONTEXT)
    _rules()


def _rules() -> None:
    now_ms, owners = dialect.clock_ms(), current_ring().tables[""]
    statistics = PlacementStatistics(
        created_at_ms=now_ms,
        datasets=tuple(
            DatasetStatistics(
                tenant=tenant,
                dataset=dataset,
                deviation=kib * 1024 / len(shards) * (0.9 if dataset == "ingest" else 0.1),
                shards=tuple(
                    ShardUsage(shard=shard, owner=owners[shard - 1], usage=kib * 1024 // len(shards) // (1 + place % 3))
                    for place, shard in enumerate(shards)
                ),
            )
            for tenant, dataset, kib, shards in sorted(DATASETS)
        ),
    )
    settings = operator_settings()
    rules, _ = build_rules(PlacementRules(), {}, statistics, settings)
    changed = differences(PlacementRules(), rules, statistics, settings)
    RulesVersion.objects.create(
        version=1, at_ms=now_ms, reason=changed[0].reason, dataset_count=5, change_count=5, usage_bytes=9 << 20
    )
    for one in changed:
        RuleChange.objects.create(
            version=1,
            at_ms=now_ms,
            tenant=one.key[0],
            dataset=one.key[1],
            before=None,
            after=rule_json(one.after),
            reason=one.reason,
        )
    RulesHead.objects.update_or_create(
        id=1,
        defaults={
            "round": 1,
            "version": 1,
            "document": encode_rules(rules),
            "statistics": encode_statistics(statistics),
            "built_at_ms": now_ms,
        },
    )
