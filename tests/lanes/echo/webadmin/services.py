"""Register text files, plan their merges, replace sources by results, and quarantine bad sources."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from django.db import transaction
from django.db.models import Max, Q

from engine.core.errors import BadObject
from engine.schedule.model import HOLDING_STATES, JobState
from engine.schedule.priority import job_priority_ms
from engine.storage import ObjectStore
from tests.lanes.echo.engine.jobs import KIND, EchoResult, Text
from tests.lanes.echo.engine.merge import read_text
from tests.lanes.echo.engine.plan import plan_job
from tests.lanes.echo.webadmin.models import REASON_MAX, TextFile, TextState
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.schedule.errors import SourcesChanged
from webadmin.schedule.isolation_stops import FoundBad
from webadmin.schedule.models import Job
from webadmin.schedule.polls.fair_shares import intern_shares
from webadmin.schedule.services.operation import Operation, operation
from webadmin.schedule.services.return_job_blocks import end_jobs
from webadmin.schedule.services.stop_isolation import isolation_stop_reason

VISIBLE = (TextState.LIVE, TextState.OWNED)


def register_texts(tenant: str, folder: str, texts: Sequence[Text]) -> int:
    """Register files at the end of a folder, those that are not known yet; return their number."""
    with transaction.atomic():
        known = set(TextFile.objects.filter(key__in=[text.key for text in texts]).values_list("key", flat=True))
        last = TextFile.objects.filter(tenant=tenant, folder=folder).aggregate(last=Max("position"))["last"] or 0
        new = [text for text in texts if text.key not in known]
        now_ms = dialect.clock_ms()
        TextFile.objects.bulk_create(
            TextFile(
                tenant=tenant, folder=folder, key=text.key, size_bytes=text.size, position=position, created_ms=now_ms
            )
            for position, text in enumerate(new, last + 1)
        )
    return len(new)


def plan_folders() -> list[str]:
    """Create a job for each folder with enough files; return their names."""
    live = TextFile.objects.filter(state=TextState.LIVE).order_by("tenant", "folder", "position")
    folders: defaultdict[tuple[str, str], list[TextFile]] = defaultdict(list)
    for row in live:
        folders[row.tenant, row.folder].append(row)
    busy = set(TextFile.objects.filter(state=TextState.OWNED).values_list("tenant", "folder").distinct())
    return [
        name
        for (tenant, folder), rows in folders.items()
        if (tenant, folder) not in busy and (name := _plan_folder(tenant, folder, rows))
    ]


def _plan_folder(tenant: str, folder: str, rows: Sequence[TextFile]) -> str:
    sources = plan_job([Text(row.key, row.size_bytes) for row in rows])
    if not sources:
        return ""
    intern_shares([(KIND, tenant)])
    name = f"echo-{tenant}-{folder}-{rows[0].position}-{rows[-1].position}"
    keys, size = [text.key for text in sources], sum(text.size for text in sources)
    entry = {"job": name, "lane": KIND, "tenant": tenant, "shard": 0, "level": 0, "sources": keys, "is_assigned": False}
    with operation() as run:
        free = TextFile.objects.filter(key__in=keys, state=TextState.LIVE)
        if not run.room() or free.count() != len(keys):
            return ""
        context = ActionContext(actor="control:echo", why="enough files")
        run.write("plan_texts", context, target=f"{tenant}/{folder}", detail={"jobs": [name], "created": [entry]})
        job = Job.objects.create(
            name=name,
            lane=KIND,
            tenant=tenant,
            shard=0,
            level=0,
            state=JobState.WAITING,
            added_at_ms=run.time.now_ms,
            priority_ms=job_priority_ms(ready_at_ms=run.time.now_ms, size_bytes=size),
            created_command_index=run.index,
            source_count=len(keys),
            source_bytes=size,
            spec={"folder": folder, "sources": keys},
        )
        free.update(state=TextState.OWNED, job=job)
        run.live_jobs += 1
    return name


def replace_texts(job_id: int, result: EchoResult) -> None:
    """Replace the sources of a job by its result. Raises SourcesChanged unless the job owns all of them."""
    job = Job.objects.get(id=job_id)
    owned = TextFile.objects.filter(job=job, state=TextState.OWNED)
    first = owned.order_by("position").first()
    if first is None or owned.update(state=TextState.SUPERSEDED) != job.source_count:
        raise SourcesChanged(f"the files of job {job.name} changed")
    TextFile.objects.create(
        tenant=first.tenant,
        folder=first.folder,
        key=result.key,
        size_bytes=result.size,
        position=first.position,
        created_ms=dialect.clock_ms(),
    )


def release_texts(jobs: Sequence[Job]) -> None:
    """Make the sources of jobs live again."""
    TextFile.objects.filter(job__in=jobs, state=TextState.OWNED).update(state=TextState.LIVE, job=None)


def isolate_texts(store: ObjectStore) -> dict[str, str]:
    """Read the sources of jobs that failed; return the quarantined keys with their errors."""
    quarantined: dict[str, str] = {}
    failing = Job.objects.filter(lane=KIND, state__in=[state.value for state in HOLDING_STATES], failures__gt=0)
    for job in failing.order_by("id"):
        bad = {}
        for row in TextFile.objects.filter(job=job, state=TextState.OWNED).order_by("position"):
            try:
                read_text(store, Text(row.key, row.size_bytes))
            except BadObject as error:
                bad[row.pk] = (row, error)
        if bad and not _is_stopped(list(bad.values())):
            quarantined |= _quarantine(job, list(bad.values()))
    return quarantined


def _is_stopped(bad: Sequence[tuple[TextFile, BadObject]]) -> bool:
    found = [FoundBad(type(error).__name__, row.created_ms) for row, error in bad]
    return bool(isolation_stop_reason(KIND, bad[0][0].place, found, ActionContext(actor="control:echo")))


def _quarantine(job: Job, bad: Sequence[tuple[TextFile, BadObject]]) -> dict[str, str]:
    """Quarantine files and end their job; its other files are planned again."""
    with operation() as run:
        keys = [row.key for row, _ in bad]
        context = ActionContext(actor="control:echo", why="cannot be read")
        run.write("quarantine_texts", context, target=bad[0][0].place, detail={"files": keys, "jobs": [job.name]})
        for row, error in bad:
            TextFile.objects.filter(pk=row.pk, state=TextState.OWNED).update(
                state=TextState.QUARANTINED,
                job=None,
                reason=str(error)[:REASON_MAX],
                error_class=type(error).__name__,
                quarantined_ms=run.time.wall_ms,
            )
        end_text_jobs(run, [job], because=f"its file {keys[0]} cannot be read")
    return {row.key: str(error) for row, error in bad}


def end_text_jobs(run: Operation, jobs: Sequence[Job], *, because: str) -> None:
    """End jobs and make their sources live again."""
    release_texts(jobs)
    end_jobs(run, list(Job.objects.filter(id__in=[job.id for job in jobs])), because=because)


def of_place(place: str, prefix: str = "") -> Q:
    """Return the condition that selects the files of a place, or rows that refer to them at ``prefix``."""
    tenant, _, folder = place.partition("/")
    return Q(**{f"{prefix}tenant": tenant, f"{prefix}folder": folder})


def bad_texts(place: str, since_ms: int, accepted_ms: int) -> Counter[str]:
    """Count the files of a place that were quarantined since ``since_ms``, by error class; both times are wall time."""
    rows = TextFile.objects.filter(
        of_place(place), state=TextState.QUARANTINED, quarantined_ms__gte=since_ms, created_ms__gt=accepted_ms
    )
    return Counter(rows.values_list("error_class", flat=True))


def release_quarantined(keys: Sequence[str], context: ActionContext) -> list[str]:
    """Make quarantined files live again; return their keys."""
    with operation() as run:
        rows = TextFile.objects.filter(key__in=keys, state=TextState.QUARANTINED)
        found = list(rows.values_list("key", flat=True))
        if found and not context.is_dry_run:
            run.write("release_texts", context, target=found[0], detail={"files": found})
            rows.update(state=TextState.LIVE, reason="", error_class="", quarantined_ms=None)
    return found
