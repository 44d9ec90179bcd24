"""Sections of the pages of a catalog job and of a compaction."""

from __future__ import annotations

from webadmin.adminkit import formatting as show
from webadmin.adminkit.sections import Facts, Section
from webadmin.lanes.catalog.lane_models import Compaction
from webadmin.lanes.catalog.states import CompactionState
from webadmin.schedule.models import Job

TONES = {
    CompactionState.OPEN: "busy",
    CompactionState.PUBLISHED: "good",
    CompactionState.LOST: "warn",
    CompactionState.FAILED: "bad",
    CompactionState.ENDED: "quiet",
}
EQUALS = {None: show.NOTHING, True: "yes: the branch is clean", False: "no"}


def job_sections(job: Job) -> list[Section]:
    """Return the sections; none if the compaction of the job no longer exists."""
    found = Compaction.objects.filter(job=job).select_related("repository").first()
    return [] if found is None else compaction_sections(found)


def compaction_sections(row: Compaction) -> list[Section]:
    """Return the input and the outcome of a compaction."""
    base_version = row.base_version or {}
    branch = f"{row.repository}/{row.branch_name}"
    return [
        Facts(
            title="Compaction",
            rows=[
                ("Branch", branch),
                ("State", show.badge(row.get_state_display(), TONES[CompactionState(row.state)])),
                ("Why", row.cause),
                ("Ended because", row.ended_because or show.NOTHING),
                ("Begun", show.moment_text(row.begun_ms)),
                ("Took", took_text(row)),
                ("Job", show.NOTHING if row.job is None else show.row_link(row.job)),
            ],
        ),
        Facts(
            title="What it rests on",
            rows=[
                ("Head", base_version.get("head", "")[:16] or show.NOTHING),
                ("Snapshot", (base_version.get("snapshot") or "")[:16] or "none: the head's state is the base"),
                ("Sealed tokens", show.count_text(row.token_count)),
                ("Rows in them", show.count_text(row.row_count)),
                ("Run", row.run_key or "gone from the store"),
            ],
        ),
        Facts(
            title="What came of it",
            rows=[
                ("Added", _count(row.added)),
                ("Changed", _count(row.changed)),
                ("Removed", _count(row.removed)),
                ("Bytes of changed rows", show.size_text(row.bytes_changed)),
                ("Bytes written", show.size_text(row.bytes_written)),
                ("State", row.metarange[:16] or show.NOTHING),
                ("Equals the head", EQUALS[row.equals_head]),
            ],
        ),
    ]


def took_text(row: Compaction) -> str:
    """Return the duration of a compaction."""
    return show.NOTHING if row.finished_ms is None else show.duration_text(row.finished_ms - row.begun_ms)


def _count(value: int | None) -> str:
    return show.NOTHING if value is None else show.count_text(value)
