"""Dead letters and refused registrations in the admin: data that is not in the index, and the reason."""

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
from webadmin.adminkit.filters import ExactFilter, ShardFilter, StateFilter, TenantNameFilter
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Section
from webadmin.base.access.models import RefusalCount
from webadmin.base.database import dialect
from webadmin.lanes.profiles.actions.blocks import LETTER_ACTIONS
from webadmin.lanes.profiles.models import DeadLetter, LetterState
from webadmin.schedule.operator_queries import with_now
from webadmin.schedule.wall_times import NowColumns

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

STATE_TONES = {
    LetterState.WAITING: "warn",
    LetterState.RECOVERED: "good",
    LetterState.DISCARDED: "quiet",
    LetterState.SWEPT: "quiet",
}


class LetterStateFilter(StateFilter):
    """Filter of dead letters by state."""

    states = LetterState


class CodeFilter(ExactFilter):
    """Filter of rows by reason."""

    title = parameter_name = column = "code"


@admin.register(DeadLetter)
class DeadLetterAdmin(ActionAdmin):
    """Dead letters, the last seen first."""

    list_display = ("block_cell", "state_cell", "why", "place", "tries", "age")
    list_filter = (LetterStateFilter, CodeFilter, TenantNameFilter, ShardFilter)
    shortcuts = tuple((state.label.capitalize(), f"state={state.value}") for state in LetterState)
    about = (
        "Metadata that could not be registered when its object was written. A control task "
        "registers it in order; an invalid dead letter does not delay the others."
    )
    operator_actions = LETTER_ACTIONS
    empty_list = "No dead letters: all written objects are registered."

    def get_queryset(self, request: HttpRequest) -> QuerySet[DeadLetter]:
        return with_now(DeadLetter.objects.all(), dialect.clock_ms())

    def heading(self, row: DeadLetter) -> str:
        return f"Dead letter of {row.ulid}"

    def sections(self, row: WithAnnotations[DeadLetter, NowColumns]) -> Sequence[Section]:
        return [
            Facts(
                title="Dead letter",
                rows=[
                    ("Key", show.code(row.key)),
                    ("State", self.state_cell(row)),
                    ("Block", show.code(row.ulid)),
                    ("Tenant", row.tenant or "segment of all tenants"),
                    ("Shard", row.shard),
                    ("Size", show.size_text(row.size_bytes)),
                    ("Written", show.age(row.written_at_ms, row.now_ms)),
                    ("First attempt", show.age(row.first_attempt_ms, row.now_ms)),
                    ("Last attempt", show.age(row.last_attempt_ms, row.now_ms)),
                    ("Attempts", row.attempts),
                    ("Code", row.code or show.NOTHING),
                    ("Reason", row.reason or show.NOTHING),
                ],
            )
        ]

    @display(description="Block")
    def block_cell(self, row: DeadLetter) -> SafeString:
        return show.code(row.ulid)

    @display(description="State")
    def state_cell(self, row: DeadLetter) -> SafeString:
        state = LetterState(row.state)
        return show.badge(state.label, STATE_TONES[state], row.reason)

    @display(description="Why")
    def why(self, row: DeadLetter) -> SafeString | str:
        return show.note(row.code, row.reason[:120]) if row.code else show.NOTHING

    @display(description="Tenant")
    def place(self, row: DeadLetter) -> SafeString:
        return show.note(show.name(row.tenant or "segment"), f"shard {row.shard}")

    @display(description="Attempts")
    def tries(self, row: DeadLetter) -> int:
        return row.attempts

    @display(description="Written ago")
    def age(self, row: WithAnnotations[DeadLetter, NowColumns]) -> SafeString | str:
        return show.waited(row.written_at_ms, row.now_ms)


@admin.register(RefusalCount)
class RefusalCountAdmin(ReadOnlyAdmin):
    """Refused registrations by sender and reason."""

    list_display = ("code_cell", "actor", "count_cell", "last", "reason")
    list_filter = (CodeFilter,)
    about = "Rejected blocks and requests by sender and reason. They were not stored."
    empty_list = "No rejections."

    def get_queryset(self, request: HttpRequest) -> QuerySet[RefusalCount]:
        return with_now(RefusalCount.objects.all(), dialect.clock_ms())

    def heading(self, row: RefusalCount) -> str:
        return f"{row.code} from {row.actor}"

    def sections(self, row: WithAnnotations[RefusalCount, NowColumns]) -> Sequence[Section]:
        return [
            Facts(
                title="Refused",
                rows=[
                    ("Sum", str(row)),
                    ("Sender", row.actor),
                    ("Code", row.code),
                    ("Count", show.count_text(row.count)),
                    ("Last", show.age(row.last_at_ms, row.now_ms)),
                    ("Last reason", row.last_reason),
                ],
            )
        ]

    @display(description="Code")
    def code_cell(self, row: RefusalCount) -> SafeString:
        return show.code(row.code)

    @display(description="Count")
    def count_cell(self, row: RefusalCount) -> str:
        return show.count_text(row.count)

    @display(description="Last")
    def last(self, row: WithAnnotations[RefusalCount, NowColumns]) -> SafeString | str:
        return show.age(row.last_at_ms, row.now_ms)

    @display(description="Last reason")
    def reason(self, row: RefusalCount) -> str:
        return row.last_reason
