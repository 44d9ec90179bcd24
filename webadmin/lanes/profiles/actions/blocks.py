"""Operators' actions on quarantined blocks and dead letters.

A preview of letters lists those that could be registered now, and the reason for each other one; or names what would be
discarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings

from engine.core.ulids import LENGTH as ULID_LENGTH
from engine.storage import open_store
from webadmin.base.actions.action import ActionContext, OperatorAction, Values
from webadmin.base.actions.fields import Switch, Texts
from webadmin.lanes.profiles.letter_models import LETTER_KEY_MAX
from webadmin.lanes.profiles.models import DeadLetter, LetterState
from webadmin.lanes.profiles.services.quarantine_blocks import release
from webadmin.lanes.profiles.services.recover_letters import forecast_named
from webadmin.lanes.profiles.services.settle_letters import discard_letter, retry_letters
from webadmin.schedule.register import NAMES_MAX

LETTERS = Texts(
    "letters", "Letters", "Keys of dead letters.", length_max=LETTER_KEY_MAX, count_max=NAMES_MAX, is_required=True
)


def _waiting(keys: Sequence[str]) -> list[str]:
    waiting = set(DeadLetter.objects.filter(key__in=keys, state=LetterState.WAITING).values_list("key", flat=True))
    return [key for key in keys if key in waiting]


def _settled(action: str, context: ActionContext, keys: Sequence[str], kept: Mapping[str, str]) -> dict[str, Any]:
    return {
        "action": action,
        "dry_run": context.is_dry_run,
        "changed": [key for key in keys if key not in kept],
        "left": [{"job": key, "reason": reason} for key, reason in kept.items()],
        "commands": [],
        "notes": [],
    }


def _retry(values: Values, context: ActionContext) -> dict[str, Any]:
    keys = _waiting(values["letters"])
    if not keys:
        return _settled("retry_letters", context, (), {})
    store = open_store(settings.OBJECT_STORE_URL)
    if context.is_dry_run:
        return _settled("retry_letters", context, keys, dict(forecast_named(store=store, keys=keys).kept))
    retry_letters(keys=keys, store=store, actor=context.actor)
    waiting = DeadLetter.objects.filter(key__in=keys, state=LetterState.WAITING)
    return _settled("retry_letters", context, keys, dict(waiting.values_list("key", "reason")))


def _discard(values: Values, context: ActionContext) -> dict[str, Any]:
    keys = _waiting(values["letters"])
    if not context.is_dry_run:
        store = open_store(settings.OBJECT_STORE_URL)
        for key in keys:
            discard_letter(key=key, reason=context.why, store=store, actor=context.actor)
    return _settled("discard_letters", context, keys, {})


def _keys(rows: Sequence[DeadLetter]) -> list[Values]:
    return [{"letters": tuple(row.key for row in rows)}]


def _waits(row: DeadLetter) -> bool:
    return row.state == LetterState.WAITING


RETRY_LETTERS = OperatorAction(
    name="retry",
    operation="retry_letters",
    label="Recover now",
    about="Registers the blocks of dead letters now instead of in the next sweep. The preview reads each letter and "
    "shows the outcome.",
    targets=(LETTERS,),
    apply=_retry,
    of_rows=_keys,
    fits=_waits,
)
DISCARD_LETTERS = OperatorAction(
    name="discard",
    operation="discard_letters",
    label="Discard",
    about="Discards dead letters: they are not retried, and their blocks are not added to the index. "
    "The objects of the blocks are not deleted.",
    targets=(LETTERS,),
    apply=_discard,
    of_rows=_keys,
    fits=_waits,
)
RELEASE = OperatorAction(
    operation="release",
    label="Release",
    about="Retries quarantined blocks, each in a separate job. Their failures are reset.",
    targets=(
        Texts("blocks", "Blocks", "ULIDs of blocks.", length_max=ULID_LENGTH, count_max=NAMES_MAX),
        Switch("all", "All", "All blocks in quarantine."),
    ),
    fields=(Switch("newer_build_only", "On a newer build only", "Only builds newer than every build that failed."),),
    apply=lambda values, context: release(
        values["blocks"], everything=values["all"], newer_build_only=values["newer_build_only"], context=context
    ),
    of_rows=lambda rows: [{"blocks": tuple(row.block.ulid for row in rows), "all": False}],
    fits=lambda row: row.released_at_ms is None,
)

LETTER_ACTIONS = (RETRY_LETTERS, DISCARD_LETTERS)
