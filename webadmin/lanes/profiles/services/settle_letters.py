"""The operator's actions on dead letters: retry now, or discard for a reason. Both can be repeated."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from engine.storage.model import ObjectStore
from webadmin.base.access.services import record_audit
from webadmin.base.database import dialect
from webadmin.lanes.profiles.errors import LetterGone
from webadmin.lanes.profiles.letter_models import REASON_MAX
from webadmin.lanes.profiles.models import DeadLetter, LetterState
from webadmin.lanes.profiles.services.recover_letters import RecoveryOutcome, recover_named


def retry_letters(*, keys: Sequence[str], store: ObjectStore, actor: str) -> RecoveryOutcome:
    """Retry these letters now instead of with the next sweep."""
    record_audit(actor=actor, action="retry_dead_letters", target=_named(keys), detail={"keys": list(keys)})
    return recover_named(store=store, keys=keys)


def discard_letter(*, key: str, reason: str, store: ObjectStore, actor: str) -> bool:
    """Discard a waiting letter: its object is deleted, the row keeps actor and reason. The block's object is kept.

    Return False if it was discarded before. Raises LetterGone if no letter of this key is waiting.
    """
    with transaction.atomic():
        waiting = DeadLetter.objects.filter(key=key, state=LetterState.WAITING)
        discarded = waiting.update(
            state=LetterState.DISCARDED,
            reason=f"discarded by {actor}: {reason}"[:REASON_MAX],
            last_attempt_ms=dialect.clock_ms(),
        )
        if discarded:
            record_audit(actor=actor, action="discard_dead_letter", target=key[:250], detail={"reason": reason})
    if not discarded and not DeadLetter.objects.filter(key=key, state=LetterState.DISCARDED).exists():
        raise LetterGone(f"no dead letter {key!r} waits; sweeps list those that they could not recover")
    store.delete(key)
    return bool(discarded)


def _named(keys: Sequence[str]) -> str:
    return f"{len(keys)} dead letters" if len(keys) != 1 else keys[0][:250]
