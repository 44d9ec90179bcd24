"""Finding blocks, and what a block's page tells of it."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from engine.core import ulids
from tests.webadmin.admin import rows
from webadmin.lanes.profiles.models import Block, DatasetName

LIST = reverse("admin:profiles_block_changelist")


def shown(operator: Client, **query: object) -> set[str]:
    """The ids in the first column of the list."""
    text = operator.get(LIST, {name: str(value) for name, value in query.items()}).content.decode()
    return set(re.findall(r'<span class="lt-code">([0-9A-Z]{26})</span>', text))


def page(operator: Client, block: Block) -> str:
    text = operator.get(reverse("admin:profiles_block_change", args=[block.pk])).content.decode()
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_blocks_are_found_by_id_by_its_beginning_and_by_object_key(operator: Client) -> None:
    block = rows.make_block(shard=3)
    old = rows.make_block(created_at_ms=rows.now_ms() - 400 * 24 * rows.HOUR_MS)
    for text in (block.ulid, f" {block.ulid.lower()} ", block.object_key):
        assert shown(operator, q=text) == {block.ulid}
    assert shown(operator, q=old.ulid[:8]) == {old.ulid}
    assert shown(operator, q=ulids.make(block.created_at_ms, b"\xff" * 10)) == set()


@pytest.mark.parametrize("text", ["checkout", "01", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "' OR 1=1 --", "01KX9!", "é" * 26])
def test_what_is_no_id_finds_nothing(operator: Client, text: str) -> None:
    rows.make_block()
    assert shown(operator, q=text) == set()


def test_blocks_are_filtered_by_tenant_shard_level_state_and_time(operator: Client) -> None:
    segment = rows.make_block()
    other_shard = rows.make_block("parked", shard=9)
    acme = rows.make_block("final", tenant="acme", level=3)
    old = rows.make_block("replaced", tenant="acme", level=1, created_at_ms=rows.now_ms() - 5 * rows.HOUR_MS)
    assert shown(operator, tenant="acme") == {acme.ulid, old.ulid}
    assert shown(operator, tenant="acm") == set()
    assert shown(operator, shard=9) == {other_shard.ulid}
    assert shown(operator, shard="nine") == set()
    assert shown(operator, level=3) == {acme.ulid}
    assert shown(operator, state="live") == {segment.ulid, other_shard.ulid, acme.ulid}
    assert shown(operator, state="parked") == {other_shard.ulid}
    assert shown(operator, state="final") == {acme.ulid}
    assert shown(operator, state="replaced") == {old.ulid}
    assert shown(operator, made="1h") == {segment.ulid, other_shard.ulid, acme.ulid}
    assert shown(operator, made="6h", tenant="acme") == {acme.ulid, old.ulid}
    assert shown(operator, queue__id__exact=segment.queue_id) == {segment.ulid}


def test_dropped_blocks_are_listed_without_those_that_were_replaced(operator: Client) -> None:
    rows.make_deletion()  # retention took a block
    rows.make_tombstone(rows.make_block("replaced"))
    assert shown(operator, state="dropped") == {Block.objects.get(state="dropped").ulid}


def test_the_newest_arrivals_come_first_and_the_last_page_is_reachable(operator: Client) -> None:
    blocks = [rows.make_block() for _ in range(60)]
    assert shown(operator) == {block.ulid for block in blocks[10:]}
    assert shown(operator, p=2) == {block.ulid for block in blocks[:10]}


def test_a_parked_block_shows_its_reason(operator: Client) -> None:
    block = rows.make_block("parked", parked_reason="damaged: <symbols> at offset 4096")
    assert "damaged: &lt;symbols&gt; at offset 4096" in operator.get(LIST).content.decode()
    assert "damaged: &lt;symbols&gt; at offset 4096" in page(operator, block)


def test_lineage_is_walked_in_both_directions(operator: Client) -> None:
    filled = rows.fill()
    top, bottom = page(operator, filled.final), page(operator, filled.segment)
    middle = page(operator, filled.middle)
    sources = middle.split("Made from")[1].split("Merged into")[0]
    assert filled.segment.ulid in sources
    assert "and 8 more" in sources
    assert filled.final.ulid in middle.split("Merged into")[1]
    assert filled.middle.ulid in top.split("Made from")[1].split("Merged into")[0]
    assert filled.segment.ulid in top.split("Made from")[1].split("Merged into")[0]
    assert "None: the block is of the highest level." in top
    upwards = bottom.split("Merged into")[1]
    assert upwards.index(filled.middle.ulid) < upwards.index(filled.final.ulid)
    assert "None: segments are written by segment writers." in bottom


def test_a_block_s_page_shows_object_job_and_datasets(operator: Client) -> None:
    job = rows.make_job("the job", "leased")
    block = rows.make_block("owned", owner_job=job, crc32c=0xDEADBEEF, size_bytes=34_934)
    rows.make_datasets(block, "checkout", "billing")
    text = page(operator, block)
    for told in (
        block.object_key,
        "deadbeef",
        "34.1 KiB",
        "merges it",
        "the job",
        "checkout",
        "billing",
        "2 label sets",
    ):
        assert told in text
    assert "__profile_type__=process_cpu:cpu:nanoseconds" in text
    assert reverse("admin:schedule_job_change", args=[job.pk]) in text
    assert "recorder 0.1" in text


def test_damaged_metadata_is_reported_and_the_rest_still_shown(operator: Client) -> None:
    block = rows.make_block(metadata=b"\xff\xff\xff")
    text = page(operator, block)
    assert "Not readable" in text
    assert "not a protobuf block metadata message" in text
    assert block.object_key in text


def test_names_from_profiles_are_text_not_markup(operator: Client) -> None:
    block = rows.make_block()
    rows.make_datasets(block, "<script>alert(1)</script>")
    assert DatasetName.objects.filter(name__startswith="<script>").exists()
    text = page(operator, block)
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_a_tombstone_shows_when_its_object_is_deleted(operator: Client) -> None:
    rows.fill()
    text = operator.get(reverse("admin:profiles_tombstone_changelist")).content.decode()
    assert re.search(r">deleted<.*", text)
    assert ">due<" in text
    assert ">deleted in 9\N{NO-BREAK SPACE}min" in text or ">deleted in 10\N{NO-BREAK SPACE}min" in text
