"""Front page section of buckets: a table of their standings."""

from __future__ import annotations

from collections.abc import Sequence

from webadmin.adminkit import formatting as show
from webadmin.adminkit.sections import Table
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.models import Bucket
from webadmin.lanes.tsdb.standing import BucketStanding, bucket_state

BUCKETS_SHOWN = 8


def buckets_table(standings: Sequence[BucketStanding]) -> Table:
    """Return a table of buckets with the remaining work in each."""
    now_ms = dialect.clock_ms()
    more = len(standings) - BUCKETS_SHOWN
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
            for one in standings[:BUCKETS_SHOWN]
            for state in [bucket_state(one)]
        ],
        more=show.link(show.list_address(Bucket), f"{more} more") if more > 0 else "",
    )
