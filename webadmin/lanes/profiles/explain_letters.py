"""Says of an object that was written and could not be registered why, and what becomes of it."""

from __future__ import annotations

from engine.schedule.explain import Explanation
from webadmin.lanes.profiles.models import DeadLetter, LetterState
from webadmin.lanes.profiles.operator_queries import whole_ulid


def explain_letters(name: str) -> list[Explanation]:
    """Explain every waiting dead letter of the block id in this name (an id or an object key)."""
    letters = DeadLetter.objects.filter(ulid=whole_ulid(name) or "", state=LetterState.WAITING)
    return [
        Explanation(
            subject=f"Object {letter.ulid}",
            state="a dead letter",
            why=f"it was written, and could not be registered: {letter.reason or letter.code}",
            next="a control task tries it again within a minute, and an operator may give it up in the list of them",
        )
        for letter in letters.order_by("id")
    ]
