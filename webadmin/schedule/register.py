"""Parked jobs: their reasons, and filters to select them.

A parked job keeps its blocks; its last error is that of its last attempt that failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict

from django.db.models import Case, CharField, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce

from engine.schedule.model import AttemptOutcome, JobState, ParkedKind
from engine.schedule.progress import count_text
from webadmin.schedule.errors import FilterEmpty
from webadmin.schedule.models import Attempt, Job

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

LEASE_EXPIRED = "LeaseExpired"
"""The error class of attempts that ended without a report."""
BAD_OUTCOMES = (AttemptOutcome.FAILED, AttemptOutcome.REFUSED, AttemptOutcome.EXPIRED)
NAMES_MAX = 1000
FAILING_COUNTED_MAX = 500
ERRORS_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """A filter of jobs: a job must match all given fields.

    ``everything`` confirms that an empty filter is intended. ``error_class`` is that of the last attempt that failed.
    """

    names: tuple[str, ...] = ()
    everything: bool = False
    error_class: str | None = None
    lane: str | None = None
    tenant: str | None = None
    shard: int | None = None
    level: int | None = None
    kind: ParkedKind | None = None

    def check(self) -> None:
        """Raise FilterEmpty if this would select all jobs without ``everything``."""
        given = (self.error_class, self.lane, self.tenant, self.shard, self.level, self.kind)
        if not self.names and not self.everything and all(value is None for value in given):
            raise FilterEmpty("name jobs, give a filter, or say that all are meant")
        if len(self.names) > NAMES_MAX:
            raise FilterEmpty(f"{len(self.names)} names: at most {NAMES_MAX} at once")

    def to_json(self) -> dict[str, object]:
        """Return the given fields, for the command log and the audit."""
        fields = ("error_class", "lane", "tenant", "shard", "level", "kind")
        given = {name: getattr(self, name) for name in fields if getattr(self, name) is not None}
        return given | ({"names": list(self.names)} if self.names else {}) | ({"all": True} if self.everything else {})

    def apply(self, jobs: QuerySet[Job]) -> QuerySet[Job]:
        """Narrow ``jobs`` to those that match."""
        self.check()
        if self.names:
            jobs = jobs.filter(name__in=self.names)
        for name in ("lane", "tenant", "shard", "level"):
            if getattr(self, name) is not None:
                jobs = jobs.filter(**{name: getattr(self, name)})
        if self.kind is not None:
            jobs = jobs.filter(is_kind(self.kind))
        if self.error_class is not None:
            jobs = with_last_error(jobs).filter(last_error_class=self.error_class)
        return jobs


class LastErrorColumns(TypedDict):
    """The columns that ``with_last_error`` adds."""

    last_error_class: str | None
    last_error_message: str | None


def is_kind(kind: ParkedKind) -> Q:
    """Return the condition that a parked job is of this kind."""
    return Q(parked_kind__in=["", kind] if kind is ParkedKind.EVICTED else [kind])


def parked_jobs(wanted: JobFilter | None = None) -> QuerySet[Any]:
    """Return the parked jobs, the last parked first.

    Each row has ``last_error_class``, ``last_error_message`` and ``why`` (the kind as text).
    """
    jobs = Job.objects.filter(state=JobState.PARKED)
    jobs = wanted.apply(jobs) if wanted else jobs
    found: QuerySet[Any] = with_last_error(jobs).annotate(
        why=Case(When(is_kind(ParkedKind.EVICTED), then=Value("evicted")), default=F("parked_kind"))
    )
    return found


def with_last_error(jobs: QuerySet[Any]) -> QuerySet[Any]:
    """Add ``last_error_class`` and ``last_error_message`` of the last attempt that failed."""
    bad = Attempt.objects.filter(job=OuterRef("pk"), outcome__in=BAD_OUTCOMES).order_by("-token")
    error_class = Coalesce(KT("reason__error_class"), Value(LEASE_EXPIRED), output_field=CharField())
    message = Coalesce(KT("reason__message"), Value(""), output_field=CharField())
    found: QuerySet[Any] = jobs.annotate(
        last_error_class=Subquery(bad.annotate(found=error_class).values("found")[:1]),
        last_error_message=Subquery(bad.annotate(found=message).values("found")[:1]),
    )
    return found


def failing_jobs() -> str:
    """Return, as text, how many jobs failed at their last attempt and are retried, and the most frequent errors.

    "" if there is none.
    """
    tried_again = Job.objects.filter(state__in=[JobState.WAITING, JobState.LEASED], failures__gt=0)
    counts = count_by_error_class(with_last_error(tried_again)[:FAILING_COUNTED_MAX])
    if not counts:
        return ""
    jobs = count_text(sum(counts.values()), "job")
    errors = ", ".join(f"{count} {name}" for name, count in islice(counts.items(), ERRORS_NAMED))
    return f"{jobs} failed at the last run, to be tried again: {errors}"


def count_by_error_class(jobs: Iterable[WithAnnotations[Job, LastErrorColumns]]) -> dict[str, int]:
    """Count these jobs (with their last error) by error class, the most frequent first."""
    counts: dict[str, int] = {}
    for job in jobs:
        name = job.last_error_class or "none"
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
