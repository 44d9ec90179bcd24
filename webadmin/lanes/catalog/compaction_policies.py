"""Compaction settings of a repository: their limits, labels, and conversion for the sensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.lanes.catalog.plan.sensor import PathLimits, SensorPolicy
from engine.protocol.errors import InvalidMessage
from engine.protocol.fields import Fields
from webadmin.adminkit.setting_labels import SettingLabel
from webadmin.lanes.catalog.errors import CatalogRefused
from webadmin.lanes.catalog.lane_models import CompactionPolicy
from webadmin.lanes.catalog.models import Repository

_COUNT_MAX = 1 << 50
_YEAR = 366 * 86_400
LINK_SECONDS_MAX = 86_400
"""Time in which a client may link an object after its address was issued: younger objects are not deleted."""
NUMBERS: Mapping[str, tuple[int, int]] = {
    "is_enabled": (0, 1),
    "tombstones": (0, _COUNT_MAX),
    "sealed_rows": (0, _COUNT_MAX),
    "sealed_tokens": (0, 10_000),
    "sealed_age_seconds": (0, _YEAR),
    "wasteful_lists": (0, 1_000_000),
    "release_percent": (0, 100),
    "cooldown_seconds": (0, _YEAR),
    "cooldown_factor": (0, 1000),
    "tokens_cap": (1, 10_000),
    "running_max": (1, 1000),
    "bytes_per_hour": (1, 1 << 60),
    "here_rows": (0, _COUNT_MAX),
    "here_bytes": (0, 1 << 50),
    "grace_seconds": (60, _YEAR),
    "object_grace_seconds": (LINK_SECONDS_MAX + 3600, _YEAR),
    "retention_days": (0, 36_600),
}
"""Minimum and maximum of each setting."""
WORDS: Mapping[str, SettingLabel] = {
    "is_enabled": SettingLabel(label="Compaction on", about="1: branches are compacted by themselves; 0: never."),
    "tombstones": SettingLabel(label="Tombstones", about="So many since the last one are a reason; 0: none are."),
    "sealed_rows": SettingLabel(label="Rows in sealed tokens", about="So many are a reason; 0: none are."),
    "sealed_tokens": SettingLabel(label="Sealed tokens", about="So many are a reason; 0: none are."),
    "sealed_age_seconds": SettingLabel(
        label="Age of a sealed token", about="One left so long by commits is a reason; 0: none is.", unit="s"
    ),
    "wasteful_lists": SettingLabel(
        label="Wasteful listings", about="So many that read far more than they showed are a reason; 0: none are."
    ),
    "release_percent": SettingLabel(
        label="Release", about="A branch stays wanted until all is below this share of its threshold.", unit="%"
    ),
    "cooldown_seconds": SettingLabel(label="Cooldown", about="A branch rests so long after a compaction.", unit="s"),
    "cooldown_factor": SettingLabel(label="Cooldown factor", about="Or so many times as long as the compaction took."),
    "tokens_cap": SettingLabel(label="Cap of sealed tokens", about="From so many on a branch does not rest."),
    "running_max": SettingLabel(label="Running at most", about="Compactions of the repository at once."),
    "bytes_per_hour": SettingLabel(
        label="Bytes an hour", about="Most that its compactions write within an hour.", unit="bytes"
    ),
    "here_rows": SettingLabel(label="Rows in one process", about="More staged rows go to Spark, where there is one."),
    "here_bytes": SettingLabel(
        label="Bytes in one process", about="More bytes to rewrite go to Spark, where there is one.", unit="bytes"
    ),
    "grace_seconds": SettingLabel(
        label="Grace of files", about="A file that nothing reaches is condemned, and deleted after so long.", unit="s"
    ),
    "object_grace_seconds": SettingLabel(
        label="Grace of objects", about="An object younger than this is never deleted.", unit="s"
    ),
    "retention_days": SettingLabel(
        label="Days of history", about="Objects only of older commits are deleted; 0: none are.", unit="d"
    ),
}
"""Label and description of each setting, in display order."""


def policy_of(repository: Repository) -> CompactionPolicy:
    """Return the settings of a repository, or the defaults if it has none."""
    return CompactionPolicy.objects.filter(repository=repository).first() or CompactionPolicy(repository=repository)


def policies_of(repositories: Iterable[Repository]) -> dict[int, CompactionPolicy]:
    """Return the settings by repository id; one query."""
    wanted = list(repositories)
    found = {row.repository_id: row for row in CompactionPolicy.objects.filter(repository__in=wanted)}
    return {one.pk: found.get(one.pk) or CompactionPolicy(repository=one) for one in wanted}


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return validated settings. Raises CatalogRefused naming the invalid one."""
    if unknown := sorted(settings.keys() - NUMBERS.keys()):
        raise CatalogRefused(f"{unknown[0][:60]!r} cannot be set: there are {', '.join(NUMBERS)}")
    values = {name: int(value) if isinstance(value, bool) else value for name, value in settings.items()}
    fields = Fields("policy", values)
    try:
        checked: dict[str, Any] = {name: fields.integer(name, *NUMBERS[name]) for name in settings}
    except InvalidMessage as error:
        raise CatalogRefused(str(error)) from error
    if "is_enabled" in checked:
        checked["is_enabled"] = bool(checked["is_enabled"])
    return checked


def sensor_policy(policy: CompactionPolicy, *, is_read_only: bool) -> SensorPolicy:
    """Return the policy for the sensor. A read-only repository is compacted only by an operator's action."""
    return SensorPolicy(
        tombstones=policy.tombstones,
        sealed_rows=policy.sealed_rows,
        sealed_tokens=policy.sealed_tokens,
        sealed_age_s=policy.sealed_age_seconds,
        wasteful_lists=policy.wasteful_lists,
        release=policy.release_percent / 100,
        cooldown_s=policy.cooldown_seconds,
        cooldown_factor=policy.cooldown_factor,
        tokens_cap=policy.tokens_cap,
        running_max=policy.running_max,
        bytes_per_hour=policy.bytes_per_hour,
        is_enabled=policy.is_enabled and not is_read_only,
    )


def path_limits(policy: CompactionPolicy) -> PathLimits:
    """Return the limits below which a node merges in its own process."""
    return PathLimits(rows=policy.here_rows, size=policy.here_bytes)
