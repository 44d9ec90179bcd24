"""Texts of retention, delete requests and certificates in the admin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.safestring import SafeString

from webadmin.adminkit import formatting as show
from webadmin.adminkit.sections import Facts, Notice, Table
from webadmin.base.access.queries import audit_of
from webadmin.lanes.profiles.deletion_models import DeleteRequest, DeleteState, DeletionCertificate
from webadmin.lanes.profiles.deletion_queries import COUNTED_MAX, RequestProgress
from webadmin.schedule.admin import job_page
from webadmin.schedule.models import Job

CHANGES_SHOWN = 20


def whose(tenant: str) -> str:
    """Return the owner of a rule as text."""
    return tenant or "all tenants without their own rule"


def is_late(request: DeleteRequest, now_ms: int) -> bool:
    """Return whether a request is past its deadline and not done."""
    return request.state == DeleteState.HIDDEN and now_ms > request.deadline_at_ms


def request_badge(request: DeleteRequest, now_ms: int) -> SafeString:
    """Return a badge with the state of a request."""
    if request.state == DeleteState.DONE:
        return show.badge("done", "good", "no indexed object contains the data")
    if is_late(request, now_ms):
        return show.badge("late", "bad", "hidden from queries, but objects hold the data past the deadline")
    return show.badge("under way", "busy", "hidden from queries; objects are being rewritten")


def request_notice(request: DeleteRequest, now_ms: int) -> Notice:
    """Return the main notice of a request's page."""
    if request.state == DeleteState.DONE:
        return Notice(tone="good", text="Done: queries hide this data, and no indexed object contains it.")
    if is_late(request, now_ms):
        late = show.duration_text(now_ms - request.deadline_at_ms)
        text = f"Late by {late}: queries hide this data, but objects still contain it. See below."
        return Notice(tone="bad", text=text)
    left = show.duration_text(request.deadline_at_ms - now_ms)
    return Notice(tone="busy", text=f"Under way: queries hide this data; objects are rewritten within {left}.")


def deadline(request: DeleteRequest, now_ms: int) -> SafeString | str:
    """Return the time left to the deadline."""
    moment = f"{show.moment_text(request.deadline_at_ms)} command time"
    if request.state == DeleteState.DONE:
        return show.hint("done", f"the deadline was {moment}")
    left_ms = request.deadline_at_ms - now_ms
    words = f"in {show.duration_text(left_ms)}" if left_ms >= 0 else f"{show.duration_text(-left_ms)} ago"
    return show.hint(words, moment)


def predicate_text(request: DeleteRequest) -> str:
    """Return the predicate of a request on one line."""
    parts = [request.service or "every service", request.selector, query_times(request)]
    return ", ".join(part for part in parts if part)


def query_times(request: DeleteRequest) -> str:
    """Return the time range of a request's data."""
    if request.from_ms is None and request.until_ms is None:
        return "all times"
    start = "" if request.from_ms is None else f"from {show.moment_text(request.from_ms)}"
    end = "" if request.until_ms is None else f"until {show.moment_text(request.until_ms)}"
    return " ".join(part for part in (start, end, "UTC") if part)


def progress_facts(request: DeleteRequest, progress: RequestProgress, now_ms: int) -> Facts:
    """Return the progress of a request, in blocks."""
    done = max(0, request.hidden_blocks - progress.in_segments - progress.in_blocks)
    return Facts(
        title="Progress",
        rows=[
            ("State", request_badge(request, now_ms)),
            ("Deadline", deadline(request, now_ms)),
            (
                "Initially hidden",
                f"{_blocks(request.hidden_blocks)}, {show.counted(request.hidden_datasets, 'dataset')}",
            ),
            ("Rewritten or dropped since", f"about {_blocks(done)}" if progress.left else _blocks(done)),
            ("Still in live blocks", _blocks(progress.in_blocks)),
            ("Still in segments", show.note(_blocks(progress.in_segments), "rewritten by their first merge")),
            ("In replaced objects", show.note(_blocks(progress.removed), "deleted after their deletion delay")),
            ("Waits for", "; ".join(progress.waits_for()) or show.NOTHING),
        ],
    )


def _blocks(count: int) -> str:
    return f"{show.count_text(count)} blocks or more" if count >= COUNTED_MAX else show.counted(count, "block")


def jobs_table(jobs: Sequence[Job], now_ms: int) -> Table:
    """Return a table of the jobs that own blocks of a request."""
    return Table(
        title="Rewriting jobs",
        headers=("Job", "State", "Worker"),
        rows=[
            (
                show.row_link(job, show.code(job.name)),
                job_page.state_with_reason(job, now_ms),
                job_page.holder(job, now_ms),
            )
            for job in jobs
        ],
        empty="No job is rewriting these blocks.",
    )


def in_time(certificate: DeletionCertificate) -> SafeString:
    """Return a badge: whether the request was done by its deadline."""
    is_late_then = bool(certificate.detail.get("is_late"))
    return show.badge("late", "warn") if is_late_then else show.badge("in time", "good")


def certificate_words(certificate: DeletionCertificate, request: DeleteRequest) -> str:
    """Return the content of a certificate as a sentence."""
    return (
        f"At command {certificate.command_index} no object that the index knows held data of tenant {request.tenant} "
        f"({predicate_text(request)}) accepted before command {request.command_index}."
    )


def certificate_json(certificate: DeletionCertificate) -> dict[str, Any]:
    """Return a certificate as a self-contained document."""
    request = certificate.request
    return {
        "certificate": certificate.pk,
        "statement": certificate_words(certificate, request),
        "issued_at": f"{certificate.at.isoformat()}",
        "issued_at_command_time_ms": certificate.issued_at_ms,
        "issued_by_command": certificate.command_index,
        "is_late": bool(certificate.detail.get("is_late")),
        "request": {
            "tenant": request.tenant.name,
            "service": request.service,
            "selector": request.selector,
            "from_ms": request.from_ms,
            "until_ms": request.until_ms,
            "accepted_before_command": request.command_index,
            "requested_at": request.at.isoformat(),
            "requested_by": request.actor,
            "why": request.why,
            "deadline_at_command_time_ms": request.deadline_at_ms,
            "hidden_blocks": request.hidden_blocks,
            "hidden_datasets": request.hidden_datasets,
        },
    }


def audit_table(action: str, target: str) -> Table:
    """Return the audit table of earlier changes and their reasons."""
    return Table(
        title="Changes",
        headers=("When (UTC)", "Who", "Before", "After", "Why"),
        rows=[
            (
                show.moment_text(show.epoch_ms(entry.at)),
                entry.actor,
                _days(entry.detail.get("before")),
                _days(entry.detail.get("after")),
                entry.detail.get("why") or show.NOTHING,
            )
            for entry in audit_of(action, target, CHANGES_SHOWN)
        ],
        empty="The audit log no longer contains them.",
    )


def _days(keep_days: int | None) -> str:
    if keep_days is None:
        return "no rule"
    return show.counted(keep_days, "day") if keep_days else "indefinitely"
