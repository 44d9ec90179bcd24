"""The lane: what the schedule, pages, metrics and commands need of text files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django.db.models import Count, Q

from engine.core.errors import LithifyError
from engine.protocol.messages import FailureReason
from engine.schedule.errors import ResultRefused
from engine.schedule.explain import Explanation
from engine.schedule.model import JobResult
from tests.lanes.echo.engine.jobs import KIND, EchoResult, EchoSpec, Text, read_result
from tests.lanes.echo.engine.plan import TEXTS_MIN
from tests.lanes.echo.webadmin import services
from tests.lanes.echo.webadmin.models import TextFile, TextState
from webadmin.adminkit import formatting as show
from webadmin.adminkit.overview import LaneOverview
from webadmin.adminkit.sections import Notice, Section, Table
from webadmin.base.actions.action import ActionContext
from webadmin.schedule.lanes import Accepted, Finished, Lane, LaneBlocker, Sample, SwapMoment, Waiting
from webadmin.schedule.models import Job
from webadmin.schedule.services.operation import Operation, OperationOutcome

FOLDERS_SHOWN = 8


class Replacement(NamedTuple):
    """A job and the file that replaces its sources."""

    job_id: int
    result: EchoResult


class EchoLane(Lane):
    """Jobs own text files of one folder; completing one replaces them by their concatenation."""

    name = KIND
    plans_ahead = True

    def specs(self, jobs: Sequence[Job], fence: int) -> dict[int, dict[str, Any]]:
        return {job_id: spec.to_json() for job_id, spec in _specs(jobs, dict.fromkeys([j.id for j in jobs], fence))}

    def check(self, finished: Sequence[Finished]) -> list[Accepted | FailureReason]:
        jobs = [one.job for one in finished]
        specs = dict(_specs(jobs, {job.id: job.token for job in jobs}))
        return [_checked(one, specs[one.job.id]) for one in finished]

    def swap(self, swaps: Sequence[Replacement], prepared: Any, moment: SwapMoment) -> None:
        for one in swaps:
            services.replace_texts(one.job_id, one.result)

    def kept(self, result: JobResult) -> dict[str, Any]:
        return {"blocks": result.to_log()}

    def holding(self, jobs: Sequence[Job]) -> set[int]:
        owned = TextFile.objects.filter(job__in=jobs, state=TextState.OWNED)
        return set(owned.values_list("job_id", flat=True))

    def give_back(self, run: Operation, jobs: Sequence[Job]) -> None:
        services.release_texts(jobs)

    def has_tenant(self, name: str) -> bool:
        return TextFile.objects.filter(tenant=name).exists()

    def waiting(self, tenant: str | None = None) -> list[Waiting]:
        rows = TextFile.objects.filter(state=TextState.LIVE)
        folders = (rows if tenant is None else rows.filter(tenant=tenant)).order_by().values("tenant", "folder")
        return [
            Waiting(row["tenant"], f"{row['tenant']}/{row['folder']}", row["count"], "file", None, "when planned")
            for row in folders.annotate(count=Count("id")).filter(count__gte=TEXTS_MIN)
        ]

    def explain(self, name: str) -> list[Explanation]:
        return [_explained(row) for row in TextFile.objects.filter(key=name).select_related("job")]

    def overview(self, now_ms: int) -> LaneOverview:
        counts = _counts()
        if not counts:
            return LaneOverview()
        bad = sum(states[TextState.QUARANTINED] for states in counts.values())
        text = f"{show.counted(bad, 'text file')} in quarantine: cannot be read, with the offset."
        address = show.list_address(TextFile, state__exact=TextState.QUARANTINED.value)
        return LaneOverview(
            notices=[Notice(tone="warn", text=text, address=address)] if bad else [],
            wide_sections=[_folder_table(counts)],
            holds=show.counted(len(counts), "folder of text files", "folders of text files"),
        )

    def job_sections(self, job: Job, now_ms: int) -> list[Section]:
        keys = [*job.spec["sources"], *(block["key"] for block in (job.result or {}).get("blocks", []))]
        rows = TextFile.objects.filter(key__in=keys).order_by("position", "id")
        return [
            Table(
                title="Text files",
                headers=("File", "State", "Size"),
                rows=[(show.row_link(row), row.get_state_display(), show.size_text(row.size_bytes)) for row in rows],
            )
        ]

    def samples(self, samples_max: int) -> Iterable[tuple[str, list[Sample]]]:
        folders = list(_counts().items())[:samples_max]
        yield (
            "lithify_echo_texts",
            [((*place, state), float(count)) for place, states in folders for state, count in sorted(states.items())],
        )

    def blockers(self) -> list[LaneBlocker]:
        count = TextFile.objects.filter(state=TextState.QUARANTINED).count()
        text = f"{count} text files in quarantine"
        return [LaneBlocker("texts_quarantined", text, "repair them, then run manage.py echo release")] if count else []

    def jobs_of(self, place: str) -> Q:
        tenant, _, folder = place.partition("/")
        return Q(tenant=tenant, spec__folder=folder)

    def bad_sources(self, place: str, since_ms: int, accepted_ms: int) -> Counter[str]:
        return services.bad_texts(place, since_ms, accepted_ms)

    def release_bad_sources(self, place: str, since_ms: int, context: ActionContext) -> list[OperationOutcome]:
        rows = TextFile.objects.filter(services.of_place(place), quarantined_ms__gte=since_ms)
        released = services.release_quarantined(list(rows.values_list("key", flat=True)), context)
        return [OperationOutcome(action="release_texts", is_dry_run=context.is_dry_run, changed=tuple(released))]


def _specs(jobs: Sequence[Job], fences: dict[int, int]) -> Iterable[tuple[int, EchoSpec]]:
    owned: defaultdict[int, list[TextFile]] = defaultdict(list)
    for row in TextFile.objects.filter(job__in=jobs, state=TextState.OWNED).order_by("position"):
        owned[row.job_id].append(row)
    for job in jobs:
        sources = tuple(Text(row.key, row.size_bytes) for row in owned[job.id])
        folder = job.spec["folder"]
        yield (
            job.id,
            EchoSpec(job=job.name, tenant=job.tenant, folder=folder, sources=sources, fence=fences[job.id]),
        )


def _checked(one: Finished, spec: EchoSpec) -> Accepted | FailureReason:
    try:
        result = read_result(one.result)
        if [text.key for text in spec.sources] != one.job.spec["sources"]:
            raise ResultRefused("some of its files are not the job's any more")
        expected = EchoResult(spec.result_key, sum(text.size for text in spec.sources))
        if result != expected:
            raise ResultRefused(f"it wrote {result}, expected {expected}")
    except LithifyError as error:
        return FailureReason(error_class=type(error).__name__, message=str(error))
    return Accepted(result, Replacement(one.job.id, result))


def _explained(row: TextFile) -> Explanation:
    subject, place = f"Text file {row.key}", f"it is a file of {row.place}"
    if row.state == TextState.QUARANTINED:
        return Explanation(subject=subject, state="quarantined", why=row.reason, next="release it once it is repaired")
    if row.state == TextState.OWNED:
        return Explanation(subject=subject, state="being merged", why=f"job {row.job} owns it")
    if row.state == TextState.SUPERSEDED:
        return Explanation(subject=subject, state="replaced", why=f"job {row.job} merged it")
    return Explanation(subject=subject, state="live", why=place, next=f"{TEXTS_MIN} live files are merged into one")


def _counts() -> dict[tuple[str, str], Counter[str]]:
    """Return the number of files by tenant and folder, then by state."""
    found: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    rows = TextFile.objects.order_by("tenant", "folder").values("tenant", "folder", "state")
    for row in rows.annotate(count=Count("id")):
        found[row["tenant"], row["folder"]][row["state"]] = row["count"]
    return dict(found)


def _folder_table(counts: dict[tuple[str, str], Counter[str]]) -> Table:
    states = list(TextState)
    return Table(
        title="Text files",
        headers=("Folder", *(state.label for state in states)),
        rows=[
            (show.name("/".join(place)), *(show.count_text(found[state]) for state in states))
            for place, found in list(counts.items())[:FOLDERS_SHOWN]
        ],
    )
