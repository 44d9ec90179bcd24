"""Count rejected requests and blocks by sender and error code: a faulty sender repeats its error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from django.db import transaction
from django.db.models import F

from engine.core.errors import LithifyError
from webadmin.base.access.models import REFUSAL_REASON_MAX, RefusalCount
from webadmin.base.database import dialect

REQUEST_PREFIX = "request."
"""Prefix of the codes of whole requests and of reports in them; codes without it are those of single blocks."""


def count_refusals(errors: Sequence[LithifyError], *, actor: str, at_ms: int) -> None:
    """Add rejections of blocks to the counts of their sender."""
    _count([(error.code, str(error)) for error in errors], actor=actor, at_ms=at_ms)


def count_refused_requests(refused: Sequence[tuple[str, str]], *, actor: str) -> None:
    """Add rejected requests or reports, as pairs of error code and message, to the counts of their sender."""
    _count([(REQUEST_PREFIX + code, words) for code, words in refused], actor=actor, at_ms=dialect.clock_ms())


def _count(refused: Sequence[tuple[str, str]], *, actor: str, at_ms: int) -> None:
    last = {code: words[:REFUSAL_REASON_MAX].replace("\0", "?") for code, words in refused}
    counts = Counter(code for code, _ in refused)
    with transaction.atomic():
        for code in sorted(counts):
            RefusalCount.objects.bulk_create(
                [RefusalCount(actor=actor, code=code, last_at_ms=at_ms)], ignore_conflicts=True
            )
            RefusalCount.objects.filter(actor=actor, code=code).update(
                count=F("count") + counts[code], last_at_ms=at_ms, last_reason=last[code]
            )
