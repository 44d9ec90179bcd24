"""Users and access in the admin: operators are edited here; tenants, credentials and the audit log are read-only."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from webadmin.accounts.credential_actions import CREDENTIAL_ACTIONS
from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.audited import AuditedAdmin
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Json, Section
from webadmin.base.access.models import AuditEntry, Tenant, WorkerCredential
from webadmin.base.access.queries import credential_warning
from webadmin.schedule.lanes import lanes

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class OperatorAdmin(AuditedAdmin, UserAdmin, ModelAdmin):  # type: ignore[type-arg]  # has no parameters at run time
    """Operators: users who may sign in to the admin."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class OperatorGroupAdmin(AuditedAdmin, GroupAdmin, ModelAdmin):
    """Groups of operators with the same permissions."""


@admin.register(Tenant)
class TenantAdmin(ReadOnlyAdmin):
    """Owners of data."""

    list_display = ("name", "since")
    search_fields = ("name",)
    search_help_text = "Part of a tenant name"
    about = "Owners of data. A tenant appears with its first profile."
    empty_list = "No tenants yet."

    def sections(self, row: Tenant) -> Sequence[Section]:
        return [
            Facts(title="Tenant", rows=[("Name", row.name), ("Known", self.since(row))]),
            *(section for lane in lanes() for section in lane.tenant_sections(row.name)),
        ]

    @display(description="Known")
    def since(self, row: Tenant) -> SafeString | str:
        return show.moment_age(row.created_at, timezone.now())


@admin.register(WorkerCredential)
class WorkerCredentialAdmin(ActionAdmin):
    """Credentials of workers, senders and API clients. Neither secrets nor their hashes are shown."""

    list_display = ("name", "state_cell", "key", "scope_text", "issued", "expires", "used")
    search_fields = ("name",)
    search_help_text = "Part of a credential name"
    about = "Credentials of workers, senders and API clients. A secret is shown once, when it is created."
    empty_list = "No credentials. Create one."
    operator_actions = CREDENTIAL_ACTIONS

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkerCredential]:
        return WorkerCredential.objects.defer("secret_hash", "previous_secret_hash")

    def sections(self, row: WorkerCredential) -> Sequence[Section]:
        return [
            Facts(
                title="Credential",
                rows=[
                    ("State", self.state_cell(row)),
                    ("Key id", self.key(row)),
                    ("May", self.scope_text(row)),
                    ("Issued", self.issued(row)),
                    ("Expires", self.expires(row)),
                    ("Replaced secret accepted until", show.moment_text(show.epoch_ms(row.previous_valid_until)))
                    if row.previous_valid_until
                    else ("Replaced secret", show.NOTHING),
                    ("Last used", self.used(row)),
                    ("Revoked", show.moment_age(row.revoked_at, timezone.now())),
                ],
            )
        ]

    @display(description="State")
    def state_cell(self, row: WorkerCredential) -> SafeString:
        if row.revoked_at is not None:
            return show.badge("revoked", "bad", f"{show.moment_text(show.epoch_ms(row.revoked_at))} UTC")
        warning = credential_warning(row, timezone.now())
        if warning:
            return show.badge(warning, "bad" if warning == "expired" else "warn")
        return show.badge("in use", "good") if row.last_used_at else show.badge("never used", "quiet")

    @display(description="Key id")
    def key(self, row: WorkerCredential) -> SafeString:
        return show.code(f"lw_{row.key_id}_…")

    @display(description="May")
    def scope_text(self, row: WorkerCredential) -> str:
        return ", ".join(row.scopes) or "nothing"

    @display(description="Issued")
    def issued(self, row: WorkerCredential) -> SafeString | str:
        return show.moment_age(row.created_at, timezone.now())

    @display(description="Expires (UTC)")
    def expires(self, row: WorkerCredential) -> str:
        return "never" if row.expires_at is None else show.moment_text(show.epoch_ms(row.expires_at))

    @display(description="Last used")
    def used(self, row: WorkerCredential) -> SafeString | str:
        return show.moment_age(row.last_used_at, timezone.now())


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    """The audit log, newest first."""

    list_display = ("when", "actor", "action_cell", "target", "detail_text")
    search_fields = ("actor", "target")
    search_help_text = "Part of an actor or target name"
    about = "Changes by operators and commands. Changes of the schedule are also in the command log."
    empty_list = "No entries."

    def heading(self, row: AuditEntry) -> str:
        return f"Audit entry {row.pk}"

    def sections(self, row: AuditEntry) -> Sequence[Section]:
        return [
            Facts(
                title="Entry",
                rows=[
                    ("When", self.when(row)),
                    ("Who", row.actor),
                    ("Did", self.action_cell(row)),
                    ("Target", row.target or show.NOTHING),
                ],
            ),
            Json(title="Detail", data=row.detail),
        ]

    @display(description="When")
    def when(self, row: AuditEntry) -> SafeString:
        age = show.duration_text(max(int((timezone.now() - row.at).total_seconds() * 1000), 0))
        return show.note(f"{show.moment_text(show.epoch_ms(row.at))} UTC", f"{age} ago")

    @display(description="Did")
    def action_cell(self, row: AuditEntry) -> str:
        return row.action.replace("_", " ")

    @display(description="Detail")
    def detail_text(self, row: AuditEntry) -> str:
        return ", ".join(f"{name}: {value}" for name, value in row.detail.items())[:120] if row.detail else ""
