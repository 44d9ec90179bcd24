"""Operators' settings of placement as the engine takes them: rows become limits and overrides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from engine.placement.build_rules import PlacementSettings
from engine.placement.model import DEFAULT_LIMITS, DatasetKey, DatasetOverride, LoadBalancing, TenantLimits
from webadmin.placement.rule_models import PlacementLimit, PlacementOverride

ALL_TENANTS = ""
LIMIT_NAMES = tuple(field.name for field in fields(TenantLimits))
OVERRIDE_NAMES = ("tenant_shards", "dataset_shards", "load_balancing", "shards")


def operator_settings() -> PlacementSettings:
    """Return the limits and overrides in force."""
    return settings_of(PlacementLimit.objects.all(), PlacementOverride.objects.all())


def settings_of(limits: Iterable[PlacementLimit], overrides: Iterable[PlacementOverride]) -> PlacementSettings:
    """Return these rows as the engine takes them; a tenant's own numbers override those of everybody."""
    own = {row.tenant: limit_values(row) for row in limits}
    default = limits_with(DEFAULT_LIMITS, own.pop(ALL_TENANTS, {}))
    return PlacementSettings(
        default_limits=default,
        tenants={tenant: limits_with(default, values) for tenant, values in sorted(own.items())},
        overrides={key_of(row): override_of(override_values(row)) for row in overrides},
    )


def key_of(row: PlacementOverride) -> DatasetKey:
    """Return the dataset of an override."""
    return (row.tenant, row.dataset)


def limit_values(row: PlacementLimit) -> dict[str, Any]:
    """Return the numbers that a row itself sets."""
    return {name: getattr(row, name) for name in LIMIT_NAMES if getattr(row, name) is not None}


def limits_with(limits: TenantLimits, values: dict[str, Any]) -> TenantLimits:
    """Return limits in which these numbers are replaced."""
    given = dict(values)
    if "load_balancing" in given:
        given["load_balancing"] = LoadBalancing(given["load_balancing"])
    return replace(limits, **given)


def override_values(row: PlacementOverride) -> dict[str, Any]:
    """Return the values that a row sets; those that follow the load are omitted."""
    found = {name: getattr(row, name) for name in OVERRIDE_NAMES if getattr(row, name) is not None}
    if not row.shards:
        del found["shards"]
    return found


def override_of(values: dict[str, Any]) -> DatasetOverride:
    """Return an override of these values."""
    given = dict(values)
    if "load_balancing" in given:
        given["load_balancing"] = LoadBalancing(given["load_balancing"])
    return DatasetOverride(**(given | {"shards": tuple(given.get("shards", ()))}))
