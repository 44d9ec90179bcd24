"""Imports started over the catalog's API, in the admin: progress and outcome."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from webadmin.adminkit import formatting as show
from webadmin.adminkit.filters import StateFilter
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Section
from webadmin.lanes.catalog.api.import_runs import is_silent
from webadmin.lanes.catalog.api.models import ImportRun, ImportState
from webadmin.lanes.catalog.models import Branch

TONES = {ImportState.RUNNING: "busy", ImportState.COMPLETED: "good", ImportState.FAILED: "bad"}


class ImportStateFilter(StateFilter):
    """Filter of imports by state."""

    states = ImportState


@admin.register(ImportRun)
class ImportRunAdmin(ReadOnlyAdmin):
    """Imports of the last week, the latest first."""

    list_display = ("branch_cell", "begun", "state_cell", "objects", "took", "error_cell")
    list_filter = (ImportStateFilter,)
    shortcuts = tuple((label.capitalize(), f"state={value}") for value, label in ImportState.choices)
    about = "Objects of a tenant's folder that become entries of a branch without being copied. Nothing is seen of an "
    about += "import before its end; one that failed can be started again."
    empty_list = "Nothing was imported within the last week."

    def get_queryset(self, request: HttpRequest) -> QuerySet[ImportRun]:
        return ImportRun.objects.select_related("repository")

    def heading(self, row: ImportRun) -> str:
        return f"Import into {row.branch} of {row.repository}"

    def sections(self, row: ImportRun) -> Sequence[Section]:
        branch = Branch.objects.filter(repository=row.repository, name=row.branch).first()
        return [
            Facts(
                title="How far it is",
                rows=[
                    ("State", self.state_cell(row)),
                    ("Branch", show.NOTHING if branch is None else show.row_link(branch)),
                    ("Objects", show.count_text(row.objects_taken)),
                    ("Begun", show.moment_text(row.begun_ms)),
                    ("Heard of last", show.moment_text(row.heartbeat_ms)),
                    ("Commit", show.code(row.commit_id[:16]) if row.commit_id else show.NOTHING),
                    ("Error", row.error or show.NOTHING),
                    ("Name", show.code(row.name)),
                ],
            )
        ]

    @display(description="Branch")
    def branch_cell(self, row: ImportRun) -> SafeString:
        return show.note(row.branch, str(row.repository))

    @display(description="Begun (UTC)")
    def begun(self, row: ImportRun) -> str:
        return show.moment_text(row.begun_ms)

    @display(description="State")
    def state_cell(self, row: ImportRun) -> SafeString:
        if is_silent(row):
            return show.badge("died", "bad", "no heartbeat for a minute: start it again")
        return show.badge(row.get_state_display().lower(), TONES[ImportState(row.state)], row.error)

    @display(description="Objects")
    def objects(self, row: ImportRun) -> str:
        return show.count_text(row.objects_taken)

    @display(description="Took")
    def took(self, row: ImportRun) -> str:
        return show.duration_text(row.heartbeat_ms - row.begun_ms)

    @display(description="Error")
    def error_cell(self, row: ImportRun) -> str:
        return row.error or show.NOTHING
