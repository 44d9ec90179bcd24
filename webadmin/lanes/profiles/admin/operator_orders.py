"""The actions on dead letters and quarantined blocks in the admin.

A preview of letters lists those that could be registered now, and the reason for each other one; or names what would be
discarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from engine.storage import open_store
from webadmin.adminkit.order_fields import switch_field
from webadmin.adminkit.orders import OperatorOrder, OrderForm, Outcome
from webadmin.lanes.profiles.models import DeadLetter, LetterState
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.lanes.profiles.services.quarantine_blocks import release
from webadmin.lanes.profiles.services.recover_letters import forecast_named
from webadmin.lanes.profiles.services.settle_letters import discard_letter, retry_letters
from webadmin.schedule.services.operation import Order


class ReleaseForm(OrderForm):
    """How blocks are released from quarantine."""

    newer_build_only = switch_field("On a newer build only", "Newer than every build that failed on them.")
    field_order = ("newer_build_only", "why")


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersSettled:
    """Outcome, or expected outcome, of letters by key."""

    changed: Sequence[str]
    left: Sequence[tuple[str, str]] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as the action's page shows it."""
        return {
            "changed": list(self.changed),
            "left": [{"letter": key, "reason": reason} for key, reason in self.left],
        }


def _waiting(rows: Sequence[DeadLetter]) -> list[str]:
    return [row.key for row in rows if row.state == LetterState.WAITING]


def _retry(rows: Sequence[DeadLetter], values: Mapping[str, Any], actor: str, is_dry_run: bool) -> LettersSettled:
    keys = _waiting(rows)
    if not keys:
        return LettersSettled(changed=())
    store = open_store(settings.OBJECT_STORE_URL)
    if is_dry_run:
        kept = dict(forecast_named(store=store, keys=keys).kept)
        return LettersSettled(changed=[key for key in keys if key not in kept], left=tuple(kept.items()))
    retry_letters(keys=keys, store=store, actor=actor)
    still = dict(DeadLetter.objects.filter(key__in=keys, state=LetterState.WAITING).values_list("key", "reason"))
    return LettersSettled(changed=[key for key in keys if key not in still], left=tuple(still.items()))


def _discard(rows: Sequence[DeadLetter], values: Mapping[str, Any], actor: str, is_dry_run: bool) -> LettersSettled:
    keys = _waiting(rows)
    if not is_dry_run:
        store = open_store(settings.OBJECT_STORE_URL)
        for key in keys:
            discard_letter(key=key, reason=values["why"], store=store, actor=actor)
    return LettersSettled(changed=keys)


def _release(rows: Sequence[Quarantine], values: Mapping[str, Any], actor: str, is_dry_run: bool) -> Outcome:
    return release(
        [row.block.ulid for row in rows],
        order=Order(actor=actor, why=values["why"], is_dry_run=is_dry_run),
        newer_build_only=values["newer_build_only"],
    )


def _waits(row: DeadLetter) -> bool:
    return row.state == LetterState.WAITING


LETTER_ORDERS = (
    OperatorOrder(
        name="retry",
        label="Recover now",
        about="Registers these letters' blocks now instead of with the next sweep. The preview reads each letter and "
        "says what would become of it.",
        give=_retry,
        fits=_waits,
    ),
    OperatorOrder(
        name="discard",
        label="Discard",
        about="Gives letters up: nobody will try them again, and the blocks they describe stay out of the index. "
        "The blocks' own objects are not touched.",
        give=_discard,
        fits=_waits,
    ),
)
RELEASE = OperatorOrder(
    name="release",
    label="Release",
    about="Lets quarantined blocks be tried again, each in its own job. What was held against them counts no more.",
    form=ReleaseForm,
    give=_release,
    fits=lambda row: row.released_at_ms is None,
)
