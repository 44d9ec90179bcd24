"""Deletion of data in the admin: retention rules, legal holds, delete requests with their certificates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.decorators import display

from engine.lanes.profiles.plan.retention import DAY_MS
from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.filters import TenantNameFilter, TenantRowFilter
from webadmin.adminkit.sections import Facts, Notice, Section, Table
from webadmin.lanes.profiles import deletion_queries as queries
from webadmin.lanes.profiles.actions.deletion import HOLD_ACTIONS, REQUEST_DELETION, RETENTION_ACTIONS
from webadmin.lanes.profiles.admin import deletion_page as page
from webadmin.lanes.profiles.deletion_models import DeleteRequest, DeletionCertificate, LegalHold, RetentionRule
from webadmin.schedule.operator_queries import command_now_ms, with_now
from webadmin.schedule.wall_times import NowColumns

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations


@admin.register(RetentionRule)
class RetentionRuleAdmin(ActionAdmin):
    """Retention rules by tenant."""

    list_display = ("tenant_cell", "keep", "before", "who", "why")
    list_filter = (TenantNameFilter,)
    about = (
        "How long data of a tenant is kept after its end time. Tenants without a rule have the rule for all "
        "tenants; its default is 31 days. Expired data is dropped before planning and every few minutes."
    )
    empty_list = "No rules: data of all tenants is kept for 31 days."
    operator_actions = RETENTION_ACTIONS

    def heading(self, row: RetentionRule) -> str:
        return f"Retention of {page.whose(row.tenant)}"

    def sections(self, row: RetentionRule) -> Sequence[Section]:
        return [
            Facts(
                title="Rule",
                rows=[
                    ("Tenant", page.whose(row.tenant)),
                    ("Data is kept for", self.keep(row)),
                    ("Expired: data before (UTC)", self.before(row)),
                    ("Set by", self.who(row)),
                    ("Why", row.why or show.NOTHING),
                ],
            ),
            page.audit_table("set_retention", row.tenant or "everybody"),
        ]

    @display(description="Tenant")
    def tenant_cell(self, row: RetentionRule) -> str:
        return page.whose(row.tenant)

    @display(description="Kept for")
    def keep(self, row: RetentionRule) -> str:
        return show.counted(row.keep_days, "day") if row.keep_days else "indefinitely"

    @display(description="Expired: data before (UTC)")
    def before(self, row: RetentionRule) -> str:
        if not row.keep_days:
            return "none"
        return show.moment_text(show.epoch_ms(timezone.now()) - row.keep_days * DAY_MS)

    @display(description="Set by")
    def who(self, row: RetentionRule) -> SafeString:
        return show.note(row.actor, f"{show.moment_text(show.epoch_ms(row.at))} UTC")


class ActiveFilter(admin.SimpleListFilter):
    """Filter of holds: in force or ended."""

    title = parameter_name = "now"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("lasts", "lasts"), ("over", "over")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "lasts":
            return queryset.filter(ended_at=None)
        return queryset.exclude(ended_at=None) if self.value() == "over" else queryset


@admin.register(LegalHold)
class LegalHoldAdmin(ActionAdmin):
    """Legal holds: tenants whose data is not removed."""

    list_display = ("tenant", "state", "since", "who", "why")
    list_filter = (ActiveFilter, TenantNameFilter)
    shortcuts = (("Lasting", "now=lasts"), ("Over", "now=over"))
    about = "A hold prevents removal of a tenant's data by retention and delete requests."
    empty_list = "No holds: retention and delete requests apply to all tenants."
    operator_actions = HOLD_ACTIONS

    def heading(self, row: LegalHold) -> str:
        return f"Hold on {row.tenant}"

    def sections(self, row: LegalHold) -> Sequence[Section]:
        return [
            Facts(
                title="Hold",
                rows=[
                    ("Tenant", row.tenant),
                    ("State", self.state(row)),
                    ("Placed", self.since(row)),
                    ("By", row.actor),
                    ("Why", row.why or show.NOTHING),
                    ("Lifted", show.moment_age(row.ended_at, timezone.now())),
                    ("Lifted by", row.ended_by or show.NOTHING),
                ],
            )
        ]

    @display(description="State")
    def state(self, row: LegalHold) -> SafeString:
        if row.ended_at is None:
            return show.badge("active", "warn", "no data of the tenant is removed")
        return show.badge("lifted", "quiet", f"by {row.ended_by}")

    @display(description="Placed")
    def since(self, row: LegalHold) -> SafeString | str:
        return show.moment_age(row.at, timezone.now())

    @display(description="By")
    def who(self, row: LegalHold) -> str:
        return row.actor


class RequestStateFilter(admin.SimpleListFilter):
    """Filter of requests by state."""

    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("late", "late"), ("hidden", "under way"), ("done", "done")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "late":
            return queries.late_requests(queryset, command_now_ms())
        return queryset.filter(state=self.value()) if self.value() in ("hidden", "done") else queryset


@admin.register(DeleteRequest)
class DeleteRequestAdmin(ActionAdmin):
    """Delete requests, the latest first."""

    list_display = ("what", "state_cell", "deadline", "hidden", "who", "why")
    list_filter = (RequestStateFilter, TenantRowFilter)
    shortcuts = (("Under way", "state=hidden"), ("Late", "state=late"), ("Done", "state=done"))
    about = (
        "Requests to delete data. Queries hide the data immediately; by the deadline no object contains it, "
        "and a certificate is issued."
    )
    empty_list = "No delete requests."
    operator_actions = (REQUEST_DELETION,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[DeleteRequest]:
        return with_now(queries.requests_for_list(), command_now_ms())

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs, including those of the certificate files."""
        view = self.admin_site.admin_view(self.certificate_view)
        name = "profiles_deleterequest_certificate"
        return [path("<int:request_id>/certificate/<int:pk>.json", view, name=name), *super().get_urls()]

    def certificate_view(self, request: HttpRequest, request_id: int, pk: int) -> HttpResponse:
        """Return a certificate as a file download."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = DeletionCertificate.objects.select_related("request__tenant").filter(pk=pk, request_id=request_id)
        certificate = rows.first()
        if certificate is None:
            raise Http404
        text = json.dumps(page.certificate_json(certificate), indent=2, ensure_ascii=False)
        name = f"deletion-certificate-{certificate.command_index}.json"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return HttpResponse(f"{text}\n", content_type="application/json; charset=utf-8", headers=headers)

    def heading(self, row: DeleteRequest) -> str:
        return f"Delete request #{row.command_index} of {row.tenant}"

    def notices(self, row: WithAnnotations[DeleteRequest, NowColumns]) -> Sequence[Notice]:
        return [page.request_notice(row, row.now_ms)]

    def sections(self, row: WithAnnotations[DeleteRequest, NowColumns]) -> Sequence[Section]:
        progress = queries.request_progress(row)
        return [
            Facts(
                title="Request",
                rows=[
                    ("Tenant", show.row_link(row.tenant)),
                    ("Service", row.service or "every service"),
                    ("Series", show.code(row.selector) if row.selector else "all series"),
                    ("Time of the data", page.query_times(row)),
                    ("Accepted before command", show.command_link(row.command_index)),
                    ("Asked", show.age(row.requested_at_ms, row.now_ms, clock=show.COMMAND_TIME)),
                    ("By", row.actor),
                    ("Why", row.why or show.NOTHING),
                ],
            ),
            page.progress_facts(row, progress, row.now_ms),
            page.jobs_table(progress.jobs, row.now_ms),
            self._certificates(row),
        ]

    def _certificates(self, row: DeleteRequest) -> Table:
        return Table(
            title="Certificates",
            headers=("Issued", "By command", "In time", "Statement", "File"),
            rows=[
                (
                    f"{show.moment_text(one.issued_at_ms)} command time",
                    show.command_link(one.command_index),
                    page.in_time(one),
                    page.certificate_words(one, row),
                    show.link(
                        reverse("admin:profiles_deleterequest_certificate", args=[row.pk, one.pk]), "Download as JSON"
                    ),
                )
                for one in row.certificates.all()
            ],
            empty="Not issued yet: it is issued when no object contains the data.",
        )

    @display(description="Data of")
    def what(self, row: DeleteRequest) -> SafeString:
        return show.note(row.tenant.name, page.predicate_text(row))

    @display(description="State")
    def state_cell(self, row: WithAnnotations[DeleteRequest, NowColumns]) -> SafeString:
        return page.request_badge(row, row.now_ms)

    @display(description="Deadline")
    def deadline(self, row: WithAnnotations[DeleteRequest, NowColumns]) -> SafeString | str:
        return page.deadline(row, row.now_ms)

    @display(description="Initially hidden")
    def hidden(self, row: DeleteRequest) -> SafeString:
        return show.note(show.counted(row.hidden_blocks, "block"), show.counted(row.hidden_datasets, "dataset"))

    @display(description="Requested by")
    def who(self, row: WithAnnotations[DeleteRequest, NowColumns]) -> SafeString:
        return show.note(row.actor, f"{show.duration_text(max(0, row.now_ms - row.requested_at_ms))} ago")
