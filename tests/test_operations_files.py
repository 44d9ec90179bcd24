"""Metrics page, alert rules and dashboard use the names that the code shows, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.core.metrics import BEAT_METRICS, CONTROL_METRICS, NODE_METRICS, WRITER_METRICS
from webadmin.base.lane_manifest import service_metrics

DOCS = Path(__file__).parents[1] / "docs"
ALERTS = DOCS / "operations/alerts.yml"
KNOWN_NAMES = DOCS / "operations/cortex-names.yml"
DASHBOARD = DOCS / "operations/dashboard.json"
METRICS = (*service_metrics(), *NODE_METRICS, *CONTROL_METRICS, *BEAT_METRICS, *WRITER_METRICS)
SHOWN = {metric.name for metric in METRICS} | {
    f"{metric.name}_{part}" for metric in METRICS if metric.kind == "histogram" for part in ("bucket", "sum", "count")
}

_SCHEDULER = "compaction_scheduler_queue_"
SECTION_13 = (
    *(
        f"{_SCHEDULER}{what}"
        for what in (
            "jobs",
            *(f"{happened}_jobs_total" for happened in ("added", "completed", "assigned", "reassigned", "evicted")),
        )
    ),
    *(f"compaction_block_queue_{what}" for what in ("blocks", "batches", "push_rejected_total", "delete_missed_total")),
    *(f"compaction_global_queue_{what}_current" for what in ("blocks", "queues", "batches")),
    "index_tombstones",
    "index_cache_requests_total",
    "dlq_recovery_attempts_total",
    "raft, FSM and KV timings",
    "(worker) jobs in progress, completed, duration",
    "(worker) time to compaction",
    "(worker) blocks deleted",
)
"""The metrics of the system that inspired the compaction service, as section 13 of its sheet lists them."""


def used(expression: str) -> set[str]:
    return set(re.findall(r"lithify_\w+", expression))


def rules(file: Path = ALERTS) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_the_page_of_metrics_agrees_with_the_code() -> None:
    rows = re.findall(
        r"^\| `(lithify_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", (DOCS / "reference/metrics.md").read_text(), re.M
    )
    told = {name: (kind, tuple(re.findall(r"`(\w+)`", labels)), meaning) for name, kind, labels, meaning in rows}
    assert told == {metric.name: (metric.kind, metric.labels, metric.meaning) for metric in METRICS}


def test_alerts_and_dashboard_use_metrics_that_are_shown() -> None:
    unknown = {
        name
        for text in [*(rule["expr"] for rule in [*rules(), *rules(KNOWN_NAMES)]), *expressions()]
        for name in used(text)
        if name not in SHOWN
    }
    assert not unknown
    labels = {metric.name: set(metric.labels) for metric in METRICS}
    for text in [*(rule["expr"] for rule in [*rules(), *rules(KNOWN_NAMES)]), *expressions()]:
        for name, matchers in re.findall(r"(lithify_\w+)\{([^}]*)\}", text):
            assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= labels[name]


def test_every_alert_has_a_summary_and_a_page() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) > 8
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]
        for page in re.findall(r"docs/(\S+\.md)", rule["annotations"]["description"]):
            assert (DOCS / page).exists(), page
        for page, heading in re.findall(r"docs/(\S+\.md), \"([^\"]+)\"", rule["annotations"]["description"]):
            assert f"## {heading}\n" in (DOCS / page).read_text(), heading


def test_the_issue_s_alarms_are_there() -> None:
    text = " ".join(rule["expr"] for rule in rules())
    wanted = {"lithify_jobs", "lithify_jobs_limit", "lithify_queue_oldest_age_seconds", "lithify_healthy"}
    assert wanted | {"lithify_tombstone_oldest_due_seconds", "lithify_dead_letter_oldest_seconds"} <= used(text)


def test_panels_do_not_overlap_and_every_level_has_its_curve() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert any("by (level)" in text for text in expressions())


def test_an_age_in_words_is_an_age() -> None:
    """``$value`` is that of the left side: of ``count > 0 and age > 60`` it would be the count."""
    for rule in rules():
        if "humanizeDuration" in rule["annotations"]["description"]:
            assert re.match(r"[^ ]*_seconds\b", rule["expr"]), rule["alert"]


def test_silence_is_an_alarm_too() -> None:
    """Every other rule needs a metric of the service: without any, none fires."""
    assert "absent(lithify_healthy)" in {rule["expr"] for rule in rules()}


def test_the_how_to_names_every_blocker() -> None:
    page = (DOCS / "how-to/stuck-queue.md").read_text()
    named = re.findall(r"^   \| `(\w+)` \|", page, re.M)
    given = re.findall(r'code="(\w+)"', (DOCS.parent / "webadmin/progress/health.py").read_text())
    assert sorted(named) == sorted(given)


def test_panels_count_once_what_every_web_process_shows() -> None:
    shared = {metric.name for metric in service_metrics()}
    for text in expressions():
        if used(text) & shared:
            assert re.search(r"\b(min|max)\b", text), text


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool: apt-get install prometheus")
def test_promtool_takes_the_rules() -> None:
    checked = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_metric_of_the_reference_is_on_the_page() -> None:
    """Section 13 of the sheet of the compaction service; the metrics that stand for each are shown by some process."""
    page = (DOCS / "reference/metrics.md").read_text()
    rows = dict(re.findall(r"^\| ((?:compaction_|index_|dlq_|raft|\(worker\))[^|]*) \| (.*) \|$", page, re.M))
    assert set(rows) == set(SECTION_13)
    for theirs, ours in rows.items():
        assert used(ours) <= SHOWN, theirs
        assert used(ours) or ours.startswith("none: "), theirs
