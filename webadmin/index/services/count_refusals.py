"""Counts what was refused, by sender and reason, where operators see it: a sender that errs does so again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from django.db import transaction
from django.db.models import F

from engine.errors import LithifyError
from webadmin.index.letter_models import REASON_MAX
from webadmin.index.models import RefusalCount


def count_refusals(errors: Sequence[LithifyError], *, actor: str, at_ms: int) -> None:
    """Add these refusals to the counts of their sender."""
    last = {error.code: str(error)[:REASON_MAX].replace("\0", "?") for error in errors}
    counts = Counter(error.code for error in errors)
    with transaction.atomic():
        for code in sorted(counts):
            RefusalCount.objects.bulk_create(
                [RefusalCount(actor=actor, code=code, last_at_ms=at_ms)], ignore_conflicts=True
            )
            RefusalCount.objects.filter(actor=actor, code=code).update(
                count=F("count") + counts[code], last_at_ms=at_ms, last_reason=last[code]
            )
