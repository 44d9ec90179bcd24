"""Sections of the job page for Prometheus blocks: the group, its sources, and the block written."""

from __future__ import annotations

from engine.lanes.tsdb.plan import reasons
from webadmin.adminkit import formatting as show
from webadmin.adminkit.sections import Facts, Section
from webadmin.lanes.tsdb.block_cells import blocks_table
from webadmin.lanes.tsdb.models import Block, Part
from webadmin.schedule.models import Job

BLOCKS_SHOWN = 100


def job_sections(job: Job) -> list[Section]:
    """Return the sections; an empty list if the job's group is no longer recorded."""
    part = Part.objects.filter(job=job).select_related("group__tenant__bucket").first()
    if part is None:
        return []
    group = part.group
    blocks = Block.objects.filter(tenant=group.tenant_id).defer("meta", "files")
    sources = list(blocks.filter(ulid__in=job.spec["sources"][:BLOCKS_SHOWN]).order_by("min_time_ms", "ulid"))
    return [
        Facts(
            title="Interval",
            rows=[
                ("Group", show.row_link(group)),
                ("Bucket", show.row_link(group.tenant.bucket)),
                ("Tenant", show.row_link(group.tenant)),
                ("Interval", reasons.slot_text(group.range_ms, group.start_ms)),
                ("Part", f"{part.partition + 1} of {group.partitions}"),
                ("Why", group.cause),
                ("Sources read alone", group.finding or show.NOTHING),
            ],
        ),
        blocks_table("Sources", sources),
        blocks_table("Result", list(blocks.filter(made_by=job))),
    ]
