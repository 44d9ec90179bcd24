"""Branch protection against staged writes and commits; merges and compaction are always allowed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from django.db import transaction

from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.base.database.dialect import locked
from webadmin.lanes.catalog.column_sizes import NAME_MAX
from webadmin.lanes.catalog.errors import BranchProtected, CatalogRefused, PreconditionFailed
from webadmin.lanes.catalog.models import Repository
from webadmin.lanes.catalog.services.repositories import check_writable

RULES_MAX = 100


class Blocked(StrEnum):
    """The actions that a rule can block."""

    STAGING_WRITE = "staging_write"
    COMMIT = "commit"


def is_blocked(rules: Iterable[Mapping[str, Any]], branch_name: str, action: Blocked) -> bool:
    """Return whether a rule whose pattern matches the branch blocks the action."""
    return any(action.value in rule["blocks"] for rule in rules if fnmatchcase(branch_name, rule["pattern"]))


def check_allowed(repository: Repository, branch_name: str, action: Blocked) -> None:
    """Raise RepositoryReadOnly or BranchProtected if staged writes to, or commits of, the branch are blocked."""
    check_writable(repository)
    if repository.protection and is_blocked(repository.protection, branch_name, action):
        raise BranchProtected(f"branch {branch_name} is protected: {action.value.replace('_', ' ')} is blocked")


def read_protection(repository: Repository) -> tuple[list[dict[str, Any]], str]:
    """Return the rules and their checksum."""
    rules = Repository.objects.values_list("protection", flat=True).get(pk=repository.pk)
    return rules, checksum_of(rules)


def write_protection(
    repository: Repository,
    rules: Iterable[Mapping[str, Any]],
    *,
    if_checksum: str | None = None,
    context: ActionContext,
) -> None:
    """Replace all rules if their checksum is ``if_checksum``. Raises CatalogRefused, PreconditionFailed."""
    checked = [_checked(rule) for rule in rules]
    if len(checked) > RULES_MAX:
        raise CatalogRefused(f"{len(checked)} rules; {RULES_MAX} are allowed")
    with transaction.atomic():
        before = locked(Repository.objects.filter(pk=repository.pk)).get().protection
        if if_checksum is not None and if_checksum != checksum_of(before):
            raise PreconditionFailed("the rules are not those of the checksum any more")
        Repository.objects.filter(pk=repository.pk).update(protection=checked)
        record_audit(
            actor=context.actor,
            action="catalog_protect_branches",
            target=str(repository),
            detail={"before": before, "after": checked, "why": context.why},
        )
    repository.protection = checked


def checksum_of(rules: object) -> str:
    """Return the checksum of rules."""
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:32]


def _checked(rule: Mapping[str, Any]) -> dict[str, Any]:
    pattern, blocks = rule.get("pattern"), rule.get("blocks", [Blocked.STAGING_WRITE, Blocked.COMMIT])
    if not isinstance(pattern, str) or not 0 < len(pattern) <= NAME_MAX or not pattern.isprintable():
        raise CatalogRefused(f"a rule's pattern is a text of 1 to {NAME_MAX} characters")
    unknown = [block for block in blocks if block not in set(Blocked)]
    if unknown:
        raise CatalogRefused(f"a rule blocks {', '.join(Blocked)}, not {unknown[0]!r}")
    return {"pattern": pattern, "blocks": [Blocked(block).value for block in blocks]}
