"""Explain jobs, tenants, and objects of lanes by name, with the sentences of ``engine.schedule.explain``.

A job is identified by its name or its row number; other names are resolved by the lanes. A few queries, no scan.
"""

from __future__ import annotations

from engine.schedule.explain import Explanation, JobFacts, explain_job, explain_owned
from engine.schedule.limits import LimitName
from engine.schedule.model import JobState
from webadmin.schedule import queries
from webadmin.schedule.blockers import cap_words, pin_words
from webadmin.schedule.command_log import read_time
from webadmin.schedule.errors import NotFound
from webadmin.schedule.explain_places import explain_tenant, pauses_of
from webadmin.schedule.lanes import lanes
from webadmin.schedule.models import Job
from webadmin.schedule.polls.polling_workers import polling_worker_count
from webadmin.schedule.register import with_last_error

NAME_MAX = 1100
NAMES = (
    "a block id or its first 6 characters, an object key, a job name, a tenant, TENANT/TABLE, TENANT/REPOSITORY, "
    "TENANT/REPOSITORY/BRANCH, or the path of a file in its table"
)
"""Names that can be explained."""


def explain_name(name: str) -> list[Explanation]:
    """Explain every block or job of this name (block ids are unique per shard only). Raises NotFound."""
    name = name.strip()[:NAME_MAX]
    found = _explained(name) if _can_be_stored(name) else []
    if not found:
        raise NotFound(f"nothing is called {name[:60]!r}: give {NAMES}")
    return found


def _can_be_stored(name: str) -> bool:
    """Return whether the database can store the text: PostgreSQL rejects NUL, and surrogates cannot be encoded."""
    return "\0" not in name and not any("\ud800" <= letter <= "\udfff" for letter in name)


def _explained(name: str) -> list[Explanation]:
    jobs = Job.objects.filter(name=name).order_by("-id")
    if not jobs and name.isascii() and name.isdigit() and len(name) < 19:
        jobs = Job.objects.filter(id=int(name))
    found = [explain_job_row(job) for job in jobs[:1]]
    if not found:
        found = [each for lane in lanes() for each in lane.explain(name)]
        found += explain_tenant(name)
    return found


def explain_job_row(job: Job) -> Explanation:
    """Explain one job."""
    return explain_job(_job_facts(job))


def explain_source(subject: str, job: Job) -> Explanation:
    """Explain a source of a job of any lane by the state of its job."""
    return explain_owned(subject, _job_facts(job))


def _job_facts(job: Job) -> JobFacts:
    now_ms = read_time().now_ms
    error_class = with_last_error(Job.objects.filter(pk=job.pk)).values_list("last_error_class", flat=True).first()
    global_max = queries.limits_now(now_ms).failures_max
    limits = queries.effective_limits(now_ms, tenants=[job.tenant], jobs=[job.name])
    results = (job.result or {}).get("blocks", []) if isinstance(job.result, dict) else []
    return JobFacts(
        name=job.name,
        state=JobState(job.state),
        now_ms=now_ms,
        lease_expires_ms=job.lease_expires_ms or 0,
        finished_at_ms=job.finished_at_ms,
        worker=job.worker.name if job.worker else "",
        source_count=job.source_count,
        shard_count=len({job.shard, *job.spec.get("source_shards", {}).values()}),
        is_rewrite=job.spec.get("is_rewrite", False),
        failures=job.failures,
        failures_max=limits.value(LimitName.FAILURES_MAX, global_max, lane=job.lane, tenant=job.tenant, job=job.name),
        parked_kind=job.parked_kind,
        parked_reason=job.parked_reason,
        last_error=error_class or "",
        result_ids=[str(block["id"]) for block in results if isinstance(block, dict) and "id" in block],
        paused=pauses_of(lane=job.lane, tenant=job.tenant, level=job.level, planning=False),
        polling_workers=polling_worker_count(),
        capped=cap_words(now_ms, lane=job.lane, tenant=job.tenant),
        pinned=pin_words(job, wall_ms=read_time().wall_ms),
    )
