"""Actions on tables: previewed, given, audited; a policy's preview plans, a saved one is kept with its history."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from engine.lanes.tables.plan import forecast as foreseeing
from tests.webadmin.admin.test_admin_actions import address, give
from tests.webadmin.admin.test_front_page import words
from tests.webadmin.admin.timeline_rows import DAY_MS, MB, fill_timeline, make_chunk, make_table
from webadmin.adminkit.setting_labels import read_size, write_size
from webadmin.base.access.models import AuditEntry
from webadmin.lanes.tables import plan_preview
from webadmin.lanes.tables.models import BadFile, Chunk, ChunkOverride, DataSource, Policy, Segment
from webadmin.lanes.tables.plan_preview import preview
from webadmin.lanes.tables.policy_fields import form_values
from webadmin.lanes.tables.states import ChunkOverrideKind

FIRST_MS = 20_000 * DAY_MS


def fragmented(days: int = 10, files: int = 24) -> DataSource:
    """A table with as many small files a day."""
    source = make_table()
    for day in range(days):
        make_chunk(source, FIRST_MS + day * DAY_MS, "unstable")
        Segment.objects.bulk_create(
            Segment(
                source=source,
                path=f"d{day}/{number}.parquet",
                start_ms=FIRST_MS + day * DAY_MS,
                end_ms=FIRST_MS + (day + 1) * DAY_MS,
                version="2026-01-01T00:00:00.000Z",
                partition=number,
                size_bytes=5 * MB,
                row_count=1_000,
                added_sequence=1,
                created_at_ms=1,
            )
            for number in range(files)
        )
    return source


def settings(source: DataSource, **changes: Any) -> dict[str, str]:
    """The policy's form as it is shown, with some fields changed."""
    values = form_values(Policy.objects.get(source=source)) | changes
    return {name: "" if value is None else str(value) for name, value in values.items()}


def test_a_policy_is_previewed_by_planning_and_saved_with_its_history(operator: Client) -> None:
    source = fragmented()
    told = give(
        operator, DataSource, "change-policy", source.id, step="preview", **settings(source, small_cost="100 MB")
    )
    assert "Small task 954 MiB 95.4 MiB" in told
    assert "Tasks 2 10" in told
    assert "Chunks rewritten 10 10" in told
    assert "Segments read 240 240" in told
    assert "Bytes in 1.1 GiB 1.1 GiB" in told
    assert "Rewritten again by the next plan 0 0" in told
    assert "no chunks would be rewritten in addition" in told
    assert Policy.objects.get(source=source).small_cost == 1_000 * MB
    give(operator, DataSource, "change-policy", source.id, **settings(source, small_cost="100 MB"))
    assert Policy.objects.get(source=source).small_cost == 100 * MB
    [entry] = AuditEntry.objects.filter(action="alter_table")
    assert (entry.actor, entry.detail["why"]) == ("operator", "because")
    page = words(operator.get(reverse("admin:tables_datasource_change", args=[source.id])).content.decode())
    assert "Small task: 954 MiB → 95.4 MiB because" in page
    assert Chunk.objects.filter(source=source, is_dirty=True).count() == 10


def test_what_changes_for_chunks_is_counted(operator: Client) -> None:
    source = fragmented(days=3, files=2)
    told = give(
        operator, DataSource, "change-policy", source.id, step="preview", **settings(source, segment_bytes_max="4 MB")
    )
    assert "3 chunks would be rewritten in addition" not in told  # they are rewritten as it is
    hot = settings(source, hot_seconds=10**9)
    told = give(operator, DataSource, "change-policy", source.id, step="preview", **hot)
    assert "Chunks rewritten 3 0" in told
    assert "no chunks would be rewritten in addition, and 3 chunks no longer" in told
    weeks = settings(source, granularity="week")
    told = give(operator, DataSource, "change-policy", source.id, step="preview", **weeks)
    assert "All chunks are analysed again" in told


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"granularity": "fortnight"}, "unknown granularity &#x27;fortnight&#x27;"),
        ({"time_zone": "Mars/Olympus"}, "unknown time zone &#x27;Mars/Olympus&#x27;"),
        ({"small_cost": "3 GB"}, "two small tasks could not be joined"),
        ({"weight_recency": "99"}, "are not four numbers that sum to 100 percent"),
        ({"segment_bytes_max": "a lot"}, "Enter a size such as 500 MiB"),
        ({"segment_bytes_max": "0"}, "Expected a size from 1 to"),
        ({"roll_up": "{"}, "This is no JSON"),
        ({"sort_columns": "ts, ts"}, "stands twice"),
        ({"low_water": "100"}, "is not below waiting_max"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_the_form(operator: Client, changes: dict[str, str], said: str) -> None:
    source = fragmented(days=1)
    told = give(operator, DataSource, "change-policy", source.id, **settings(source, **changes))
    assert said in told
    assert not AuditEntry.objects.exists()


def test_a_long_table_is_previewed_by_a_labelled_sample(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    source = fragmented()
    monkeypatch.setattr(plan_preview.preview, "__kwdefaults__", {"segments_max": 50})
    told = give(operator, DataSource, "change-policy", source.id, step="preview", **settings(source, gain_half=9))
    assert "Sample of the newest 72 segments" in told
    assert "Chunks rewritten 3 3" in told
    found = preview(source, Policy.objects.get(source=source), segments_max=50)
    assert found.from_ms == FIRST_MS + 7 * DAY_MS
    assert preview(source, Policy.objects.get(source=source), segments_max=240).from_ms is None


def test_the_rest_page_plans_twice_and_names_what_does_not_rest(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = fragmented(days=2)
    address = reverse("timeline-rest", args=[source.id])
    assert "Yes, after 1 task: the plan after that is empty." in words(operator.get(address).content.decode())
    monkeypatch.setattr(
        foreseeing, "apply_plan", lambda segments, plan, policy: list(segments)
    )  # merges that do nothing
    told = words(operator.get(address).content.decode())
    assert "the next plan would rewrite 2 chunks again" in told
    assert told.count("24 segments of 114 MiB could be 1") == 2
    quiet = make_table("quiet")
    rests = words(operator.get(reverse("timeline-rest", args=[quiet.id])).content.decode())
    assert "Yes, it rests now: the plan after that is empty." in rests


def test_the_rest_page_shows_chunks_that_were_rewritten_repeatedly(operator: Client) -> None:
    address = reverse("timeline-rest", args=[fill_timeline().id])
    assert "What was done: 1 chunk rewritten 4 times or more within 7 days." in words(
        operator.get(address).content.decode()
    )


def test_chunks_are_overridden_now_or_never_and_the_overrides_ended(operator: Client) -> None:
    source = fragmented(days=3)
    first, second, third = Chunk.objects.filter(source=source).order_by("start_ms")
    told = give(operator, Chunk, "compact-never", first.id, second.id, step="preview")
    assert "Intervals (1)" in told
    assert not ChunkOverride.objects.exists()
    give(operator, Chunk, "compact-never", first.id, second.id)
    give(operator, Chunk, "compact-now", third.id)
    never, now = ChunkOverride.objects.order_by("id")
    assert (never.kind, never.start_ms, never.end_ms) == (ChunkOverrideKind.NEVER, first.start_ms, second.end_ms)
    assert (now.kind, now.start_ms, now.why, now.actor) == (
        ChunkOverrideKind.NOW,
        third.start_ms,
        "because",
        "operator",
    )
    panel = reverse("timeline-chunk", args=[source.id, first.start_ms])
    assert "Never compact: override by operator" in words(operator.get(panel).content.decode())
    give(operator, Chunk, "end-overrides", second.id)
    give(operator, ChunkOverride, "end-override", now.id)
    assert not ChunkOverride.objects.filter(ended_at_ms=None).exists()
    assert [entry.action for entry in AuditEntry.objects.order_by("id")] == [
        "compact_never",
        "compact_now",
        "end_compact_never",
        "end_compact_now",
    ]


def test_an_action_about_a_chunk_leads_back_to_the_timeline(operator: Client) -> None:
    source = fragmented(days=1)
    chunk = Chunk.objects.get(source=source)
    answer = operator.post(address(Chunk, "compact-now"), {"ids": str(chunk.id), "step": "apply", "why": "slow"})
    assert answer["Location"] == f"{reverse('timeline-page', args=[source.id])}?chunk={chunk.start_ms}"


def test_chunks_and_files_are_released(operator: Client) -> None:
    source = fill_timeline()
    failed = Chunk.objects.get(source=source, is_quarantined=True)
    give(operator, Chunk, "retry-chunks", failed.id)
    failed.refresh_from_db()
    assert (failed.is_quarantined, failed.failures, failed.is_dirty) == (False, 0, True)
    lost = BadFile.objects.create(source=source, path="never/in.parquet", error_class="NoFooter", at_ms=1)
    give(operator, BadFile, "release-files", lost.id)
    lost.refresh_from_db()
    assert (lost.released_by, lost.release_why) == ("operator", "because")


def test_a_table_is_paused_and_resumed(operator: Client) -> None:
    source = make_table()
    assert "1 changed" in give(operator, DataSource, "pause-table", source.id)
    source.refresh_from_db()
    assert source.is_paused
    assert "0 changed" in give(operator, DataSource, "pause-table", source.id)
    give(operator, DataSource, "resume-table", source.id)
    source.refresh_from_db()
    assert not source.is_paused


def test_users_with_view_permission_run_no_table_actions(db: None) -> None:
    source = fragmented(days=1)
    clerk = User.objects.create(username="clerk", is_staff=True)
    clerk.user_permissions.set(
        Permission.objects.filter(content_type__app_label="tables", codename__startswith="view_")
    )
    client = Client()
    client.force_login(clerk)
    chunk = Chunk.objects.get(source=source)
    assert client.get(reverse("admin:tables_chunk_change", args=[chunk.id])).status_code == 200
    for name, model in (("compact-now", Chunk), ("change-policy", DataSource)):
        answer = client.post(address(model, name), {"ids": "1", "step": "apply", "why": "x"})
        assert answer.status_code == 403
    assert not ChunkOverride.objects.exists()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500 MB", 500 * MB),
        ("1.5GB", 1_500 * MB),
        ("1048576", 1 << 20),
        ("0", 0),
        ("7 kB", 7_000),
        ("2T", 2 * 10**12),
        ("500 MiB", 500 << 20),
        ("1.5 GiB", 3 << 29),
        ("8KiB", 8 << 10),
        ("1 GB", 10**9),
    ],
)
def test_sizes_are_parsed_with_units(text: str, size: int) -> None:
    assert read_size(text) == size
    assert read_size(write_size(size)) == size
