"""Quarantined blocks in the admin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.filters import ExactFilter
from webadmin.adminkit.sections import Facts, Section
from webadmin.lanes.profiles.actions.blocks import RELEASE
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.schedule.wall_times import WallTimeColumns, commanded_ms, with_wall_times

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations


class ErrorClassFilter(ExactFilter):
    """Filter of blocks by error class."""

    title = "error class"
    parameter_name = column = "error_class"


def damage_place(row: Quarantine) -> str:
    """Return the damaged section, and the offset if it is known."""
    return f"{row.section} at {row.offset}" if row.section and row.offset >= 0 else row.section


@admin.register(Quarantine)
class QuarantineAdmin(ActionAdmin):
    """Blocks that cannot be merged, the latest found first."""

    list_display = ("block_cell", "state_cell", "damage", "tries", "found", "job_cell")
    list_filter = (ErrorClassFilter,)
    shortcuts = (("Held", "released_at_ms__isnull=1"), ("Released", "released_at_ms__isnull=0"))
    about = (
        "Blocks that failed alone while similar blocks were merged by the same build, or whose object is missing. "
        "Queries still read them; other blocks are merged without them."
    )
    empty_list = "Quarantine is empty: no block was found to be damaged or missing."
    operator_actions = (RELEASE,)
    list_select_related = ("block", "job")

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        return lookup == "released_at_ms__isnull" or super().lookup_allowed(lookup, value, request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Quarantine]:
        rows = Quarantine.objects.select_related("block", "job").defer("block__metadata", "job__spec", "job__result")
        return with_wall_times(rows)

    def action_rows(self, ids: Sequence[str]) -> QuerySet[Quarantine]:
        return Quarantine.objects.filter(pk__in=ids).select_related("block")

    def heading(self, row: Quarantine) -> str:
        return f"Quarantine of {row.block.ulid}"

    def sections(self, row: WithAnnotations[Quarantine, WallTimeColumns]) -> Sequence[Section]:
        return [
            Facts(
                title="Failure",
                rows=[
                    ("About", str(row)),
                    ("State", self.state_cell(row)),
                    ("Block", show.row_link(row.block, show.code(row.block.ulid))),
                    ("Job", self.job_cell(row)),
                    ("Error class", row.error_class),
                    ("Message", row.message or show.NOTHING),
                    ("Object", show.code(row.object) if row.object else show.NOTHING),
                    ("Where", damage_place(row) or show.NOTHING),
                    ("Build that failed", row.build or show.NOTHING),
                    ("Attempts alone", row.attempts),
                    ("Found", show.age(commanded_ms(row, row.at_ms), row.wall_ms)),
                    ("Command", show.command_link(row.command_index)),
                    ("Released by", row.released_by or show.NOTHING),
                    ("Why released", row.release_why or show.NOTHING),
                ],
            )
        ]

    @display(description="Block")
    def block_cell(self, row: Quarantine) -> SafeString:
        return show.note(show.code(row.block.ulid), show.place_text(row.block.shard, row.block.level))

    @display(description="State")
    def state_cell(self, row: Quarantine) -> SafeString:
        if row.released_at_ms is not None:
            return show.badge("released", "quiet", f"by {row.released_by}")
        return show.badge(row.cause, "bad")

    @display(description="Damage")
    def damage(self, row: Quarantine) -> SafeString:
        return show.note(row.error_class, damage_place(row) or row.message[:80])

    @display(description="Attempts")
    def tries(self, row: Quarantine) -> SafeString:
        return show.note(str(row.attempts), row.build)

    @display(description="Found")
    def found(self, row: WithAnnotations[Quarantine, WallTimeColumns]) -> SafeString | str:
        return show.age(commanded_ms(row, row.at_ms), row.wall_ms)

    @display(description="Job")
    def job_cell(self, row: Quarantine) -> SafeString | str:
        return show.row_link(row.job, show.short_code(row.job.name))
