"""Admin pages of Prometheus block buckets: buckets, tenants and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Q, QuerySet, Sum
from django.http import HttpRequest
from django.utils.safestring import SafeString, mark_safe
from unfold.decorators import display

from engine.lanes.tsdb.plan import reasons
from engine.lanes.tsdb.plan.model import SlotProgress, SlotState
from engine.schedule.model import JobState
from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.filters import StateFilter
from webadmin.adminkit.read_only import BoundedChangeList, ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Notice, Picture, Section, Table
from webadmin.adminkit.state_label import StateLabel
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.actions import BUCKET_ACTIONS, WITHDRAW
from webadmin.lanes.tsdb.block_cells import TenantFilter, blocks_table
from webadmin.lanes.tsdb.calendar_picture import WIDTH, calendar_picture, legend
from webadmin.lanes.tsdb.models import Block, Bucket, BucketTenant, Folder, Group, Part
from webadmin.lanes.tsdb.policies import read_ranges
from webadmin.lanes.tsdb.progress import TenantProgress, tenant_progress
from webadmin.lanes.tsdb.services.buckets import SETTINGS
from webadmin.lanes.tsdb.states import GroupState
from webadmin.lanes.tsdb.status import bucket_state, bucket_statuses, partition_notices, tenant_state
from webadmin.lanes.tsdb.unrecorded_blocks import unrecorded_blocks

SHOWN = 100
NOTICES_MAX = 5
GROUP_TONES = {GroupState.OPEN: "busy", GroupState.DONE: "good", GroupState.DISSOLVED: "warn"}


class BucketChangeList(BoundedChangeList):
    """A change list that reads the statuses of the listed buckets in one pass."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        for row, now in zip(rows, bucket_statuses(rows), strict=True):
            row.now = now
        self.result_list = rows


class TenantChangeList(BoundedChangeList):
    """A change list that reads the statuses of the listed tenants in one pass."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        found = {each.tenant_id: each for each in tenant_progress(tenant_ids=[row.id for row in rows])}
        for row in rows:
            row.now = found[row.id]
        self.result_list = rows


def _badge(state: StateLabel) -> SafeString:
    return show.badge(state.word, state.tone, state.why)


class GroupStateFilter(StateFilter):
    """Filter groups by state."""

    states = GroupState


class RefusedFilter(admin.SimpleListFilter):
    """Filter tenants by whether planning is refused or compactions are pending."""

    title = parameter_name = "state"
    CHOICES: ClassVar[dict[str, tuple[str, Q]]] = {
        "refused": ("not planned", ~Q(refusal="")),
        "compacting": ("compacting", Q(refusal="", compactions__gt=0)),
        "caught-up": ("caught up", Q(refusal="", compactions=0)),
    }

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(name, label) for name, (label, _) in self.CHOICES.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.CHOICES.get(self.value() or "")
        return queryset.filter(chosen[1]) if chosen else queryset


@admin.register(Bucket)
class BucketAdmin(ActionAdmin):
    """Adopted buckets."""

    list_display = ("name_cell", "layout", "place", "scanned", "state")
    about = "Buckets of Prometheus blocks that Lithify compacts. No other compactor may run on these buckets."
    empty_list = "No buckets. Adopt one with manage.py tsdb adopt or the action above."
    operator_actions = BUCKET_ACTIONS

    def notices(self, row: Bucket) -> Sequence[Notice]:
        [now] = bucket_statuses([row])
        cut = [Notice(tone=tone, text=text) for tone, text in partition_notices(now.too_large, now.parts)]
        if row.scan_error:
            return [Notice(tone="bad", text=f"The last scan failed: {row.scan_error}"), *cut]
        if row.is_paused:
            cut.append(Notice(tone="warn", text="The bucket is paused: no scans or planning."))
        troubled = Folder.objects.filter(bucket=row).exclude(trouble="").order_by("name")
        return cut + [
            Notice(tone="bad", text=f"The last scan of {name or 'the bucket'} failed: {trouble}")
            for name, trouble in troubled.values_list("name", "trouble")[:NOTICES_MAX]
        ]

    def sections(self, row: Bucket) -> Sequence[Section]:
        sums = Folder.objects.filter(bucket=row).order_by().aggregate(bad=Sum("bad"), partial=Sum("partial"))
        settings = [(name.replace("_", " ").capitalize(), str(getattr(row, name)) or show.NOTHING) for name in SETTINGS]
        return [
            Facts(
                title="Bucket",
                rows=[
                    ("State", _badge(bucket_state(bucket_statuses([row])[0]))),
                    ("URL", show.code(row.url)),
                    ("Layout", row.get_layout_display()),
                    ("Last scan", self.scanned(row)),
                    ("Requests of the last scan", show.count_text(row.scan_requests)),
                    ("Bad blocks", show.count_text(sums["bad"] or 0)),
                    ("Unfinished uploads", show.count_text(sums["partial"] or 0)),
                ],
            ),
            _tenants_table(tenant_progress(row.id)[:SHOWN]),
            Facts(title="Settings", rows=settings),
        ]

    @display(description="Name")
    def name_cell(self, row: Bucket) -> SafeString:
        return show.name(row.name)

    @display(description="Place")
    def place(self, row: Bucket) -> SafeString:
        return show.code(row.url)

    @display(description="Last scan")
    def scanned(self, row: Bucket) -> SafeString | str:
        return show.age(row.scanned_at_ms, dialect.clock_ms())

    @display(description="State")
    def state(self, row: Any) -> SafeString:
        return _badge(bucket_state(row.now))

    change_list_class = BucketChangeList


def _tenants_table(rows: Sequence[TenantProgress]) -> Table:
    return Table(
        title="Tenants",
        headers=("Tenant", "Blocks", "Waiting", "Compactions", "Jobs", "Parked", "Quarantined", "Caught up"),
        rows=[
            (
                each.tenant,
                f"{show.count_text(each.blocks)}, {show.size_text(each.bytes)}",
                show.count_text(each.waiting),
                show.count_text(each.compactions),
                f"{each.jobs_running} running, {each.jobs_waiting} waiting",
                show.count_text(each.jobs_parked),
                show.count_text(each.quarantined),
                caught_up(each),
            )
            for each in rows
        ],
        empty="No tenants found.",
    )


def caught_up(each: TenantProgress) -> SafeString | str:
    """Return when the tenant's compaction is expected to catch up with its newest blocks, as text."""
    state = tenant_state(each)
    if state.word != "compacting":
        return _badge(state)
    return "unknown" if each.seconds is None else f"in {show.duration_text(round(each.seconds * 1000))}"


@admin.register(BucketTenant)
class BucketTenantAdmin(ReadOnlyAdmin):
    """Tenants of buckets with their intervals."""

    list_display = ("name_cell", "bucket_cell", "waiting_cell", "compactions_cell", "planned", "state")
    list_filter = (RefusedFilter,)
    search_fields = ("name",)
    search_help_text = "Tenant name"
    about = "Tenants of the buckets, with waiting blocks and the compactions needed to catch up."
    empty_list = "No tenants. Adopt a bucket; a control worker scans it."

    def get_queryset(self, request: HttpRequest) -> QuerySet[BucketTenant]:
        return BucketTenant.objects.select_related("bucket", "folder").defer("folder__examined")

    def heading(self, row: BucketTenant) -> str:
        return f"Tenant {row.name} of {row.bucket.name}"

    def notices(self, row: BucketTenant) -> Sequence[Notice]:
        found = [Notice(tone=tone, text=text) for tone, text in partition_notices(row.too_large, row.parts)]
        if not row.refusal:
            return found
        until = f", until {show.moment_text(row.refused_until_ms)} at least" if row.refused_until_ms else ""
        return [Notice(tone="bad", text=f"Planning is refused{until}: {row.refusal}"), *found]

    def sections(self, row: BucketTenant) -> Sequence[Section]:
        [now] = tenant_progress(tenant_ids=[row.id])
        slots = slots_of(row)
        groups = Group.objects.filter(tenant=row).order_by("-id")[:SHOWN]
        return [
            Facts(
                title="Progress",
                rows=[
                    ("Bucket", show.row_link(row.bucket, row.bucket.name)),
                    ("Blocks", f"{show.count_text(now.blocks)}, {show.size_text(now.bytes)}"),
                    ("Waiting", show.counted(now.waiting, "block")),
                    ("Compactions to catch up", show.count_text(now.compactions)),
                    ("Caught up", caught_up(now)),
                    ("Jobs", f"{now.jobs_running} running, {now.jobs_waiting} waiting, {now.jobs_parked} parked"),
                    ("Quarantined", show.counted(now.quarantined, "block")),
                    ("To be written to the bucket", show.counted(now.to_write, "step")),
                    ("Planned", self.planned(row)),
                ],
            ),
            *_calendar(row, slots),
            _slots_table(slots),
            *_unrecorded_table(row),
            Table(
                title="Groups",
                headers=("Group", "Interval", "Blocks", "Parts", "State", "Why"),
                rows=[
                    (
                        show.row_link(group),
                        reasons.slot_text(group.range_ms, group.start_ms),
                        show.count_text(group.block_count),
                        show.count_text(group.partitions),
                        group_state(group),
                        group.ended_because or group.cause,
                    )
                    for group in groups
                ],
                empty="No groups.",
            ),
        ]

    @display(description="Tenant")
    def name_cell(self, row: BucketTenant) -> SafeString:
        return show.name(row.name)

    @display(description="Bucket")
    def bucket_cell(self, row: BucketTenant) -> str:
        return row.bucket.name

    @display(description="Waiting")
    def waiting_cell(self, row: BucketTenant) -> str:
        return show.counted(row.waiting, "block")

    @display(description="Compactions to catch up")
    def compactions_cell(self, row: BucketTenant) -> str:
        return show.count_text(row.compactions)

    @display(description="Planned")
    def planned(self, row: BucketTenant) -> SafeString | str:
        return show.age(row.planned_at_ms, dialect.clock_ms())

    @display(description="State")
    def state(self, row: Any) -> SafeString:
        return _badge(tenant_state(row.now))

    change_list_class = TenantChangeList


def slots_of(row: BucketTenant) -> list[SlotProgress]:
    """Return the tenant's intervals as of its last plan; intervals whose group has a parked job are shown as parked."""
    names = ("group_key", "range_ms", "start_ms", "state", "blocks", "waiting", "compactions")
    slots = [dict(zip(names, slot, strict=True)) for slot in row.slots]
    groups = Group.objects.filter(tenant=row, state=GroupState.OPEN, parts__job__state=JobState.PARKED)
    parked = set(groups.values_list("group_key", "range_ms", "start_ms"))
    return [
        SlotProgress(**{**slot, "state": SlotState.PARKED if _place(slot) in parked else SlotState(slot["state"])})
        for slot in slots
    ]


def _place(slot: Mapping[str, Any]) -> tuple[str, int, int]:
    return slot["group_key"], slot["range_ms"], slot["start_ms"]


def _calendar(row: BucketTenant, slots: Sequence[SlotProgress]) -> list[Picture]:
    if not slots:
        return []
    newest_ms = max(slot.start_ms for slot in slots)
    picture = calendar_picture(slots, read_ranges(row.bucket.ranges), newest_ms)
    return [
        Picture(
            title="Intervals",
            picture=mark_safe(picture),  # noqa: S308  numbers and escaped words
            width=WIDTH,
            legend=legend(),
            more="Numbers are remaining compactions; times are UTC.",
        )
    ]


def _slots_table(slots: Sequence[SlotProgress]) -> Table:
    open_slots = [slot for slot in slots if slot.state is not SlotState.DONE]
    return Table(
        title="Intervals with remaining work",
        headers=("Interval", "State", "Blocks", "Waiting", "Compactions"),
        rows=[
            (
                reasons.slot_text(slot.range_ms, slot.start_ms),
                slot.state.value,
                show.count_text(slot.blocks),
                show.count_text(slot.waiting),
                show.count_text(slot.compactions),
            )
            for slot in sorted(open_slots, key=lambda slot: -slot.start_ms)[:SHOWN]
        ],
        empty="None.",
        more=f"{len(open_slots) - SHOWN} more" if len(open_slots) > SHOWN else "",
    )


def _unrecorded_table(row: BucketTenant) -> list[Table]:
    found = unrecorded_blocks(row.folder_id)
    return [
        Table(
            title="Blocks that could not be added",
            headers=("Block", "State", "Why"),
            rows=[
                (show.code(each.ulid), show.badge(each.state, "bad" if each.state == "bad" else "warn"), each.why)
                for each in found[:SHOWN]
            ],
            more=f"{len(found) - SHOWN} more" if len(found) > SHOWN else "",
        )
    ][: len(found)]


def group_state(group: Group) -> SafeString:
    """Return a group's state."""
    return show.badge(group.state, GROUP_TONES[GroupState(group.state)], group.ended_because or group.finding)


@admin.register(Group)
class GroupAdmin(ActionAdmin):
    """Groups of blocks, newest first."""

    list_display = ("id_cell", "tenant_cell", "interval", "blocks", "partitions", "state_cell", "made")
    list_filter = (GroupStateFilter, TenantFilter)
    shortcuts = tuple((state.label.capitalize(), f"state={state.value}") for state in GroupState)
    about = "Blocks of one interval that are merged together. A group is done when all its parts are."
    empty_list = "No groups."
    operator_actions = (WITHDRAW,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Group]:
        return Group.objects.select_related("tenant__bucket")

    def notices(self, row: Group) -> Sequence[Notice]:
        return [Notice(tone="bad", text=f"Its job is parked: {row.finding}")] if row.finding else []

    def sections(self, row: Group) -> Sequence[Section]:
        parts = Part.objects.filter(group=row).select_related("job__worker", "result").defer("job__spec", "job__result")
        sources = Block.objects.filter(group=row).defer("meta", "files")[:SHOWN]
        return [
            Facts(
                title="Group",
                rows=[
                    ("Tenant", show.row_link(row.tenant)),
                    ("Interval", self.interval(row)),
                    ("Blocks", f"{show.counted(row.block_count, 'block')}, {show.size_text(row.byte_count)}"),
                    ("State", group_state(row)),
                    ("Why", row.cause),
                    ("Reason for end", row.ended_because or show.NOTHING),
                    ("Made", self.made(row)),
                    ("Command", show.command_link(row.command_index)),
                ],
            ),
            Table(
                title="Parts",
                headers=("Part", "Job", "State", "Failures", "Result"),
                rows=[
                    (
                        f"{part.partition + 1} of {row.partitions}",
                        show.row_link(part.job),
                        part.job.state if part.job.state != JobState.PARKED else f"parked: {part.job.parked_reason}",
                        show.count_text(part.job.failures),
                        show.row_link(part.result) if part.result else show.NOTHING,
                    )
                    for part in parts.order_by("partition")[:SHOWN]
                ],
            ),
            blocks_table("Sources", list(sources)),
        ]

    @display(description="Group")
    def id_cell(self, row: Group) -> str:
        return str(row)

    @display(description="Tenant")
    def tenant_cell(self, row: Group) -> SafeString | str:
        return show.note(row.tenant.name, row.tenant.bucket.name)

    @display(description="Interval")
    def interval(self, row: Group) -> str:
        return reasons.slot_text(row.range_ms, row.start_ms)

    @display(description="Blocks")
    def blocks(self, row: Group) -> str:
        return f"{show.count_text(row.block_count)}, {show.size_text(row.byte_count)}"

    @display(description="State")
    def state_cell(self, row: Group) -> SafeString:
        return group_state(row)

    @display(description="Made")
    def made(self, row: Group) -> SafeString | str:
        return show.age(row.created_at_ms, dialect.clock_ms())


# Registers the admin classes of blocks.
from webadmin.lanes.tsdb import admin_blocks  # noqa: E402, F401
