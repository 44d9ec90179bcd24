"""Catalogs in the admin: repositories, branches with their compaction signals, and compactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.filters import StateFilter
from webadmin.adminkit.read_only import BoundedChangeList, ReadOnlyAdmin
from webadmin.adminkit.sections import Notice, Section
from webadmin.lanes.catalog.actions import BRANCH_ACTIONS, REPOSITORY_ACTIONS
from webadmin.lanes.catalog.branch_loads import watched_branches
from webadmin.lanes.catalog.compaction_sections import TONES, compaction_sections, took_text
from webadmin.lanes.catalog.lane_models import Compaction
from webadmin.lanes.catalog.models import Branch, Repository
from webadmin.lanes.catalog.repository_sections import (
    age_text,
    branch_sections,
    cause_text,
    collection_words,
    done_words,
    last_compactions,
    last_words,
    layers_text,
    repository_notices,
    repository_sections,
    sensor_words,
    staged_words,
    state_badge,
    tombstones_text,
)
from webadmin.lanes.catalog.states import CompactionState, RepositoryState
from webadmin.lanes.catalog.status import statuses


class RepositoryChangeList(BoundedChangeList):
    """Change list of repositories that reads the status of all listed ones at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        found = statuses(rows)
        for row in rows:
            row.now = found[row.pk]
        self.result_list = rows


class BranchChangeList(BoundedChangeList):
    """Change list of branches that reads the compaction signals of all listed ones at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        found = {one.branch.pk: one for one in watched_branches([row.pk for row in rows])}
        last = last_compactions(found)
        self.result_list = [row for row in rows if row.pk in found]
        for row in self.result_list:
            row.watched, row.last = found[row.pk], last.get(row.pk)


class CompactionStateFilter(StateFilter):
    """Filter of compactions by state."""

    states = CompactionState


@admin.register(Repository)
class RepositoryAdmin(ActionAdmin):
    """Repositories and their status."""

    list_display = ("name_cell", "branches", "sealed", "tombstones", "compactions", "garbage", "state_cell")
    search_fields = ("name",)
    search_help_text = "Repository name"
    about = (
        "Versioned catalogs with branches, commits and staged changes. A repository's page lists its slow branches. "
        "Deleted repositories are listed until their files are deleted."
    )
    empty_list = "No repositories. Create one with the catalog API."
    operator_actions = REPOSITORY_ACTIONS

    def back_address(self, rows: Sequence[Repository]) -> str:
        return show.page_address(rows[0]) if len(rows) == 1 else super().back_address(rows)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Repository]:
        return Repository.objects.exclude(state=RepositoryState.DELETING)

    change_list_class = RepositoryChangeList

    def heading(self, row: Repository) -> str:
        return f"Repository {row}"

    def notices(self, row: Repository) -> Sequence[Notice]:
        return repository_notices(row)

    def sections(self, row: Repository) -> Sequence[Section]:
        return repository_sections(row)

    @display(description="Repository")
    def name_cell(self, row: Repository) -> SafeString:
        return show.note(row.name, row.tenant)

    @display(description="Branches")
    def branches(self, row: Any) -> str:
        return show.count_text(row.now.branches)

    @display(description="Sealed tokens")
    def sealed(self, row: Any) -> SafeString | str:
        most = row.now.most_sealed
        more = f"most on {most.branch.name}" if most is not None and most.load.sealed_tokens else ""
        return show.note(show.count_text(row.now.sealed_tokens), more)

    @display(description="Tombstones")
    def tombstones(self, row: Any) -> str:
        return tombstones_text(row.now.tombstones)

    @display(description="Compactions")
    def compactions(self, row: Any) -> SafeString | str:
        return done_words(row.now)

    @display(description="Condemned")
    def garbage(self, row: Any) -> SafeString | str:
        return collection_words(row.now)

    @display(description="State")
    def state_cell(self, row: Any) -> SafeString:
        return state_badge(row, row.now)


@admin.register(Branch)
class BranchAdmin(ActionAdmin):
    """Branches with their compaction signals."""

    list_display = (
        "name_cell",
        "layers",
        "sealed",
        "oldest",
        "staged",
        "tombstones",
        "listings",
        "sensor",
        "last_cell",
    )
    search_fields = ("name",)
    search_help_text = "Branch name"
    about = "Branches of catalogs. Reads search every sealed token; listings scan every tombstone."
    empty_list = "No branches. Each repository has at least one."
    operator_actions = BRANCH_ACTIONS

    def get_queryset(self, request: HttpRequest) -> QuerySet[Branch]:
        found = Branch.objects.filter(repository__state=RepositoryState.ACTIVE)
        return found.select_related("repository").order_by("repository__tenant", "repository__name", "name")

    change_list_class = BranchChangeList

    def action_rows(self, ids: Sequence[str]) -> QuerySet[Branch]:
        return Branch.objects.filter(pk__in=ids).select_related("repository")

    def heading(self, row: Branch) -> str:
        return f"Branch {row.name} of {row.repository}"

    def sections(self, row: Branch) -> Sequence[Section]:
        return branch_sections(row)

    @display(description="Branch")
    def name_cell(self, row: Branch) -> SafeString:
        return show.note(row.name, str(row.repository))

    @display(description="Layers")
    def layers(self, row: Any) -> str:
        return layers_text(row.watched)

    @display(description="Sealed tokens")
    def sealed(self, row: Any) -> SafeString | str:
        load = row.watched.load
        return show.note(show.count_text(load.sealed_tokens), show.counted(load.sealed_rows, "row"))

    @display(description="Oldest")
    def oldest(self, row: Any) -> str:
        return age_text(row.watched)

    @display(description="Staged")
    def staged(self, row: Any) -> str:
        return staged_words(row.watched)

    @display(description="Tombstones")
    def tombstones(self, row: Any) -> str:
        return tombstones_text(row.watched.load.tombstones)

    @display(description="Wasteful listings")
    def listings(self, row: Any) -> str:
        return show.count_text(row.watched.load.wasteful_lists)

    @display(description="Sensor")
    def sensor(self, row: Any) -> SafeString | str:
        return sensor_words(row.watched)

    @display(description="Last compaction")
    def last_cell(self, row: Any) -> SafeString | str:
        return last_words(row.last)


@admin.register(Compaction)
class CompactionAdmin(ReadOnlyAdmin):
    """Compactions of branches, the latest first."""

    list_display = ("id_cell", "branch_cell", "begun", "state_cell", "took", "rows_cell", "written", "cause_cell")
    list_filter = (CompactionStateFilter,)
    shortcuts = tuple((label.capitalize(), f"state={value}") for value, label in CompactionState.choices)
    about = "Compactions of the sealed tokens of a branch. A commit or reset during a compaction discards its result."
    empty_list = "No compactions."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Compaction]:
        return Compaction.objects.select_related("repository", "job").defer("job__spec", "job__result")

    def sections(self, row: Compaction) -> Sequence[Section]:
        return compaction_sections(row)

    @display(description="Compaction")
    def id_cell(self, row: Compaction) -> str:
        return str(row)

    @display(description="Branch")
    def branch_cell(self, row: Compaction) -> SafeString:
        return show.note(row.branch_name, str(row.repository))

    @display(description="Begun (UTC)")
    def begun(self, row: Compaction) -> str:
        return show.moment_text(row.begun_ms)

    @display(description="State")
    def state_cell(self, row: Compaction) -> SafeString:
        return show.badge(row.get_state_display(), TONES[CompactionState(row.state)], row.ended_because)

    @display(description="Took")
    def took(self, row: Compaction) -> str:
        return took_text(row)

    @display(description="Rows")
    def rows_cell(self, row: Compaction) -> SafeString | str:
        return show.note(show.count_text(row.row_count), show.counted(row.token_count, "token"))

    @display(description="Written")
    def written(self, row: Compaction) -> SafeString | str:
        return show.note(show.size_text(row.bytes_written), f"{show.size_text(row.bytes_changed)} changed")

    @display(description="Why")
    def cause_cell(self, row: Compaction) -> SafeString | str:
        return show.note("ordered" if row.is_ordered else "sensor", cause_text(row))
