"""Front page section of buckets: a table of their statuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webadmin.adminkit import formatting as show
from webadmin.adminkit.overview import LaneOverview
from webadmin.adminkit.sections import Notice, Section, Table
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.models import BlockQuarantine, Bucket, BucketTenant, OutboxStep
from webadmin.lanes.tsdb.progress import tenant_progress
from webadmin.lanes.tsdb.status import BucketStatus, bucket_state, bucket_statuses

BUCKETS_SHOWN = 8


def buckets_table(statuses: Sequence[BucketStatus]) -> Table:
    """Return a table of buckets with the remaining work in each."""
    now_ms = dialect.clock_ms()
    more = len(statuses) - BUCKETS_SHOWN
    return Table(
        title="Buckets of Prometheus blocks",
        headers=(
            *("Bucket", "State", "Last scan", "Tenants", "Blocks that wait", "Compactions to catch up"),
            *("Jobs", "Quarantined", "To write"),
        ),
        rows=[
            (
                show.row_link(one.bucket, show.name(one.bucket.name)),
                show.badge(state.word, state.tone, state.why),
                show.age(one.bucket.scanned_at_ms, now_ms),
                show.count_text(one.tenants),
                show.count_text(one.waiting),
                show.count_text(one.compactions),
                f"{show.count_text(one.running)} running, {show.count_text(one.queued)} waiting, "
                f"{show.count_text(one.parked)} parked",
                show.count_text(one.kept_out),
                show.count_text(one.to_write),
            )
            for one in statuses[:BUCKETS_SHOWN]
            for state in [bucket_state(one)]
        ],
        more=show.link(show.list_address(Bucket), f"{more} more") if more > 0 else "",
    )


def tenant_sections(tenant: str) -> list[Section]:
    """Return a table of the buckets in which a tenant has blocks; nothing if there is none."""
    rows = list(BucketTenant.objects.filter(name=tenant).select_related("bucket").order_by("bucket__name"))
    progress = {one.tenant_id: one for one in tenant_progress(tenant_ids=[row.pk for row in rows])} if rows else {}
    table = Table(
        title="Prometheus blocks",
        headers=("Bucket", "Blocks", "Size", "Waiting", "Compactions to catch up"),
        rows=[
            (
                show.row_link(row, show.name(row.bucket.name)),
                show.count_text(now.blocks),
                show.size_text(now.bytes),
                show.counted(now.waiting, "block"),
                show.count_text(now.compactions),
            )
            for row in rows
            for now in [progress[row.pk]]
        ],
    )
    return [table] if rows else []


def tsdb_overview() -> LaneOverview:
    """Return the state of buckets for the front page."""
    rows = bucket_statuses()
    ahead = sum(one.compactions for one in rows)
    return LaneOverview(
        notices=list(_notices(rows)),
        wide_sections=[buckets_table(rows)] if rows else [],
        ahead=f"{show.counted(ahead, 'compaction')} of buckets ahead, no job for them yet" if ahead else "",
        holds=f"{show.counted(len(rows), 'bucket')} of Prometheus blocks" if rows else "",
    )


def _notices(rows: Sequence[BucketStatus]) -> Iterator[Notice]:
    buckets = show.list_address(Bucket)
    if silent := sum(bool(one.bucket.scan_error) and not one.bucket.is_paused for one in rows):
        text = f"{show.counted(silent, 'bucket')} of Prometheus blocks not read: the last scan broke off."
        yield Notice(tone="bad", text=text, address=buckets)
    if failing := sum(one.failing_writes for one in rows):
        text = f"{show.counted(failing, 'write')} to buckets refused: results are not seen yet; tried again."
        yield Notice(tone="bad", text=text, address=show.list_address(OutboxStep, now="open"))
    if parts := sum(one.parts for one in rows):
        text = (
            f"{show.counted(parts, 'published block')} of buckets may be deleted as duplicates by another compactor: "
            "parts of groups in buckets that do not allow parts."
        )
        yield Notice(tone="bad", text=text, address=buckets)
    if kept_out := sum(one.kept_out for one in rows):
        text = f"{show.counted(kept_out, 'block')} of buckets quarantined as unreadable, with the place."
        yield Notice(tone="warn", text=text, address=show.list_address(BlockQuarantine, released_at_ms__isnull=1))
    if refused := sum(one.refused for one in rows):
        text = f"{show.counted(refused, 'tenant')} of buckets not planned, with the reason."
        yield Notice(tone="warn", text=text, address=show.list_address(BucketTenant, state="refused"))
    if too_large := sum(one.too_large for one in rows):
        text = f"{show.counted(too_large, 'group')} of buckets not merged: too large, and not to be cut."
        yield Notice(tone="warn", text=text, address=buckets)
