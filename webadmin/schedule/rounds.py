"""Run a step of a control task for each of many tables, buckets or repositories."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from engine.core.errors import LithifyError

log = logging.getLogger(__name__)

Subject = TypeVar("Subject")
Report = TypeVar("Report")


@dataclass(frozen=True, slots=True)
class Round(Generic[Report]):
    """Reports of a round with their subjects' names, which may repeat, and the reasons of those that failed."""

    named: list[tuple[str, Report]] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def reports(self) -> list[Report]:
        """The reports alone."""
        return [report for _, report in self.named]

    def total(self, name: str) -> int:
        """Return the sum of a number over the reports."""
        return sum(getattr(report, name) for report in self.reports)


def error_text(error: Exception) -> str:
    """Return the class and the message of an error, without NUL characters, which the database rejects."""
    return f"{type(error).__name__}: {error}".replace("\0", " ")


def run_round(
    event: str,
    subjects: Iterable[Subject],
    step: Callable[[Subject], Report],
    *,
    note_failure: Callable[[Subject, Exception], str] = lambda subject, error: error_text(error),
) -> Round[Report]:
    """Run the step for each subject; an error of any kind in one does not stop the others.

    The failure is logged as ``event``, an unexpected one with its traceback, and recorded as what ``note_failure``
    returns.
    """
    done: Round[Report] = Round()
    for subject in subjects:
        try:
            done.named.append((str(subject), step(subject)))
        except Exception as error:
            is_expected = isinstance(error, LithifyError)
            log.warning("%s name=%s reason=%s", event, subject, error, exc_info=None if is_expected else error)
            done.failed[str(subject)] = note_failure(subject, error)
    return done
