"""Sections of the pages of a repository and of a branch: compaction signals, sensor decisions, history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings
from django.utils.safestring import SafeString

from webadmin.adminkit import formatting as show
from webadmin.adminkit.sections import Facts, Notice, Section, Table
from webadmin.adminkit.setting_labels import number_text
from webadmin.base.access.models import AuditEntry
from webadmin.base.database.dialect import clock_ms
from webadmin.lanes.catalog.branch_loads import WatchedBranch, watched_branches
from webadmin.lanes.catalog.compaction_policies import NUMBERS, WORDS, policy_of
from webadmin.lanes.catalog.compaction_sections import TONES, took_text
from webadmin.lanes.catalog.explain import weigh
from webadmin.lanes.catalog.lane_models import Collection, Compaction
from webadmin.lanes.catalog.models import Branch, Repository, StagedEntry
from webadmin.lanes.catalog.states import CompactionState
from webadmin.lanes.catalog.status import RepositoryStatus, statuses

SHOWN = 50
STAGED_COUNTED = 10_000
HISTORY_SHOWN = 20
POLICY_ACTION = "catalog_change_compaction"
_WORDS_OF = {"sealed_age_s": "sealed_age_seconds"}
_THRESHOLDS = ("tombstones", "sealed_rows", "sealed_tokens", "sealed_age_seconds", "wasteful_lists")
_OFF_AT_0 = dict.fromkeys(_THRESHOLDS, "off") | {"retention_days": "all"}


def state_badge(row: Repository, now: RepositoryStatus) -> SafeString:
    """Return a badge with the state of a repository."""
    if row.deleted_ms is not None:
        return show.badge("deleted", "bad", deleted_words(row))
    if now.failed:
        return show.badge("compactions fail", "bad", "within the last hour, or parked: see its compactions")
    if now.is_not_collected:
        return show.badge("not collected", "bad", now.collection.error if now.collection else "")
    if now.running:
        return show.badge("compacting", "busy")
    return show.badge("wants compaction", "warn") if now.wanted else show.badge("quick", "good")


def done_words(now: RepositoryStatus) -> SafeString | str:
    """Return a summary of the compactions within the last hour."""
    count = now.compactions.get(CompactionState.PUBLISHED, 0)
    lost = now.compactions.get(CompactionState.LOST, 0)
    more = f"{show.size_text(now.written)} written" + (f", {show.count_text(lost)} lost a race" if lost else "")
    return show.note(f"{show.count_text(count)} in an hour", more)


def collection_words(now: RepositoryStatus) -> SafeString | str:
    """Return a summary of the last garbage collection."""
    last = now.collection
    when = "never looked for" if last is None else f"looked for {ago_text(last.finished_ms)}"
    return show.note(show.counted(now.orphans, "file"), when)


def ago_text(ms: int) -> str:
    """Return the time since a moment as text."""
    return f"{show.duration_text(max(0, clock_ms() - ms))} ago"


def deleted_words(row: Repository) -> str:
    """Return when a repository was deleted and until when it can be restored."""
    at_ms = row.deleted_ms or 0
    until_ms = at_ms + 1000 * settings.CATALOG_REPOSITORY_GRACE_SECONDS
    return (
        f"Deleted {show.moment_text(at_ms)} (UTC). It can be restored until {show.moment_text(until_ms)}; then its "
        "files are deleted."
    )


def repository_notices(row: Repository) -> list[Notice]:
    """Return the notices that need an operator."""
    if row.deleted_ms is not None:
        return [Notice(tone="bad", text=deleted_words(row))]
    [now] = statuses([row]).values()
    notices = []
    if now.failed:
        text = f"{show.counted(now.failed, 'compaction')} failed within an hour, or parked: see why below."
        notices.append(Notice(tone="bad", text=text))
    if now.is_not_collected and now.collection:
        notices.append(Notice(tone="bad", text=f"Nothing is deleted: {now.collection.error}"))
    if not policy_of(row).is_enabled:
        notices.append(Notice(tone="warn", text="Compaction is switched off: its branches become slower."))
    return notices


def repository_sections(row: Repository) -> list[Section]:
    """Return the sections of a repository's page."""
    [now] = statuses([row]).values()
    return [
        Facts(
            title="How it stands",
            rows=[
                ("State", state_badge(row, now)),
                ("Branches", show.count_text(now.branches)),
                ("Sealed tokens", show.count_text(now.sealed_tokens)),
                ("Tombstones", tombstones_text(now.tombstones)),
                ("Branches that want compaction", show.count_text(now.wanted)),
                ("Compactions under way", show.count_text(now.running)),
                ("Compactions", done_words(now)),
                ("Condemned files", show.count_text(now.orphans)),
                (
                    "Retired tokens",
                    show.note(show.count_text(now.retired_tokens), "rows go within a minute, tokens after their grace"),
                ),
                ("Place", show.code(row.storage_namespace)),
                ("Writes", "read-only" if row.is_read_only else "allowed"),
            ],
        ),
        _branches(row),
        compactions_table(Compaction.objects.filter(repository=row), has_branch=True),
        _collections(row),
        _policy(row),
        _history(row),
    ]


def branch_sections(row: Branch) -> list[Section]:
    """Return the sections of a branch's page."""
    [one] = watched_branches([row.pk])
    load, decision, watch = one.load, weigh(one), one.watch
    return [
        Facts(
            title="What it costs to read",
            rows=[
                ("Layers", layers_text(one)),
                ("Staged now", staged_text(row)),
                ("Sealed tokens", show.count_text(load.sealed_tokens)),
                ("Rows in them", show.count_text(load.sealed_rows)),
                ("Oldest of them", age_text(one)),
                ("Tombstones", tombstones_text(load.tombstones)),
                ("Wasteful listings", show.count_text(load.wasteful_lists)),
                ("Base", "snapshot " + row.snapshot[:16] if row.snapshot else "the head commit"),
                ("Head", show.code(row.head[:16])),
                ("Changes of layers", show.count_text(row.epoch)),
            ],
        ),
        Facts(
            title="What the sensor says",
            rows=[
                ("Now", decision.held.value),
                ("Failed compaction", one.failed or show.NOTHING),
                ("Why", signals_text(decision.signals)),
                ("Ordered", f"by {watch.ordered_by}: {watch.ordered_why}" if watch and watch.ordered_by else "no"),
                ("Lost or failed in a row", show.count_text(load.lost_in_a_row)),
            ],
        ),
        compactions_table(Compaction.objects.filter(branch_id=row.pk)),
    ]


def signals_text(signals: Sequence[tuple[str, float, float]]) -> str:
    """Return the signals that have reached their threshold."""
    texts = []
    for name, value, limit in signals:
        setting = _WORDS_OF.get(name, name)
        reached = setting_value(setting, round(value))
        texts.append(f"{WORDS[setting].label}: {reached} of {setting_value(setting, round(limit))}")
    return "; ".join(texts) or show.NOTHING


def staged_text(row: Branch) -> str:
    """Return the number of rows in the staging token; the count stops at a limit."""
    count = StagedEntry.objects.filter(token_id=row.staging).values("key")[: STAGED_COUNTED + 1].count()
    if count > STAGED_COUNTED:
        return f"more than {show.counted(STAGED_COUNTED, 'row')} in the staging token"
    return f"{show.counted(count, 'row')} in the staging token"


def tombstones_text(count: int) -> str:
    """Return the tombstone count of a branch or repository, as every page and command shows it.

    It counts deletions since the last compaction or commit; a repeated deletion counts again.
    """
    return f"about {show.count_text(count)}" if count else show.NOTHING


def staged_words(one: WatchedBranch) -> str:
    """Return the rows written to a branch since its last compaction or commit."""
    return f"about {show.count_text(one.staged)}" if one.staged else show.NOTHING


def layers_text(one: WatchedBranch) -> str:
    """Return the number of layers that a point read checks."""
    return f"{show.count_text(one.load.sealed_tokens + 1)} over its base"


def age_text(one: WatchedBranch) -> str:
    """Return the age of a branch's oldest sealed token."""
    age_s = one.load.sealed_age_s
    if age_s is None:
        return "a commit is taking them along" if one.load.sealed_tokens else show.NOTHING
    return show.duration_text(round(age_s * 1000))


def sensor_words(one: WatchedBranch) -> SafeString | str:
    """Return the last decision of the sensor about a branch."""
    watch = one.watch
    if one.failed:
        return show.note(show.badge("compaction failed", "bad", "its job is parked"), one.failed)
    if watch is not None and watch.ordered_by and not one.load.is_running:
        return show.note("ordered", f"by {watch.ordered_by}: {watch.ordered_why}")
    if watch is None or not watch.held:
        return "quick"
    return show.note(watch.held, watch.reason)


def last_words(row: Compaction | None) -> SafeString | str:
    """Return the outcome and the cause of a branch's last compaction."""
    if row is None:
        return show.NOTHING
    state = show.badge(row.get_state_display(), TONES[CompactionState(row.state)], row.ended_because)
    return show.note(state, f"{cause_text(row)}, {ago_text(row.begun_ms)}")


def last_compactions(branch_ids: Iterable[int]) -> dict[int, Compaction]:
    """Return the last compaction of each branch; one query per branch, for the branches of a page."""
    found = {}
    for branch_id in branch_ids:
        row = Compaction.objects.filter(branch_id=branch_id).order_by("-pk").first()
        if row is not None:
            found[branch_id] = row
    return found


def _branches(row: Repository) -> Table:
    watched = [one for one in watched_branches() if one.branch.repository_id == row.pk]
    watched.sort(key=lambda one: (-one.load.sealed_tokens, -one.load.tombstones, one.branch.name))
    last = last_compactions([one.branch.pk for one in watched[:SHOWN]])
    return Table(
        title="Branches with something staged",
        headers=("Branch", "Sealed tokens", "Oldest", "Staged", "Tombstones", "Sensor", "Last compaction"),
        rows=[
            (
                show.row_link(one.branch),
                show.note(show.count_text(one.load.sealed_tokens), show.counted(one.load.sealed_rows, "row")),
                age_text(one),
                staged_words(one),
                tombstones_text(one.load.tombstones),
                sensor_words(one),
                last_words(last.get(one.branch.pk)),
            )
            for one in watched[:SHOWN]
        ],
        more=f"{len(watched) - SHOWN} more" if len(watched) > SHOWN else "",
    )


def compactions_table(rows: Any, *, has_branch: bool = False) -> Table:
    """Return a table of the last compactions, with duration and bytes."""
    found = list(rows.order_by("-pk")[:HISTORY_SHOWN])
    headers = ("Compaction", "Begun", "State", "Why", "Took", "Rows", "Written", "Ended because")
    return Table(
        title="Last compactions",
        headers=(headers[0], "Branch", *headers[1:]) if has_branch else headers,
        rows=[_compaction_row(each, has_branch=has_branch) for each in found],
        empty="None yet.",
    )


def cause_text(each: Compaction) -> str:
    """Return the cause of a compaction; in names of signals, underscores become spaces."""
    return each.cause if each.is_ordered else each.cause.replace("_", " ")


def _compaction_row(each: Compaction, *, has_branch: bool) -> Sequence[object]:
    cells = (
        show.moment_text(each.begun_ms),
        show.badge(each.get_state_display(), TONES[CompactionState(each.state)]),
        cause_text(each),
        took_text(each),
        show.count_text(each.row_count),
        show.size_text(each.bytes_written),
        each.ended_because or show.NOTHING,
    )
    return (show.row_link(each), each.branch_name, *cells) if has_branch else (show.row_link(each), *cells)


def _collections(row: Repository) -> Table:
    found = Collection.objects.filter(repository=row).order_by("-pk")[:HISTORY_SHOWN]
    return Table(
        title="Last looks for what nothing reaches",
        headers=(
            "When",
            "By",
            "Files",
            "Condemned",
            "Deleted",
            "Objects condemned",
            "Objects deleted",
            "Rows deleted",
            "Freed",
            "Error",
        ),
        rows=[
            (
                show.moment_text(each.begun_ms),
                each.actor,
                show.count_text(each.files_seen),
                show.count_text(each.files_condemned),
                show.count_text(each.files_deleted),
                show.count_text(each.objects_condemned) if each.has_objects else "not listed",
                show.count_text(each.objects_deleted) if each.has_objects else show.NOTHING,
                show.count_text(each.rows_deleted),
                show.size_text(each.bytes_deleted),
                each.error or show.NOTHING,
            )
            for each in found
        ],
        empty="None yet: the first is made within half an hour.",
    )


def setting_value(name: str, value: Any) -> str:
    """Return the value of a setting as text."""
    if name == "is_enabled":
        return "yes" if value else "no"
    if not value and name in _OFF_AT_0:
        return _OFF_AT_0[name]
    unit = WORDS[name].unit
    return number_text(int(value), unit) if unit else show.count_text(int(value))


def _policy(row: Repository) -> Facts:
    policy = policy_of(row)
    return Facts(
        title="What is set",
        rows=[(WORDS[name].label, setting_value(name, getattr(policy, name))) for name in NUMBERS],
    )


def _history(row: Repository) -> Table:
    entries = AuditEntry.objects.filter(action=POLICY_ACTION, target=str(row)).order_by("-id")[:HISTORY_SHOWN]
    return Table(
        title="Changes of what is set",
        headers=("When", "By", "Why", "What"),
        rows=[
            (
                show.moment_text(show.epoch_ms(each.at)),
                each.actor,
                each.detail.get("why") or show.NOTHING,
                "; ".join(
                    f"{WORDS[name].label}: {setting_value(name, each.detail['before'][name])} → "
                    f"{setting_value(name, value)}"
                    for name, value in each.detail["after"].items()
                    if name in WORDS
                ),
            )
            for each in entries
        ],
        empty="It was never changed.",
    )
