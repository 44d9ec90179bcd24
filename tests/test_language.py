"""Phrases and identifiers that were replaced by the field's terms do not come back in shipped code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHIPPED = ("engine", "spark", "tasks", "webadmin")
RETIRED = (
    # what is retired, the term in its place
    (r"nobodys?_", "unclaimable"),
    (r"_become_deaf|\bdeaf\b", "_mark_disconnected"),
    (r"\bknock", "probe"),
    (r"\b_bear\b", "_on_poll_error"),
    (r"\b_take_in\b", "_apply_response"),
    (r"\b_go_on\b", "_run_post_commit_hooks"),
    (r"nobody wants job", "job cancelled"),
    (r"evictions register", "parked jobs"),
    (r"swaps_unasked", "swap_is_pipelined"),
    (r"deletion_line\b", "deletion_queue"),
    (r"\bNO_OPINION\b", "NEUTRAL"),
    (r"\bthe sheet\b", "the page in docs/reference"),
    (r"[Pp]ut tenants to sleep", "mark tenants idle"),
    (r"would do nothing, and nobody knew", "reject unknown fields"),
    (r"\btogether\(\)", "pipeline()"),
    (r"\bDoorsFirst\b|\bdoors_first\b|\bapi\.door\b", "ingest_middleware, operation_view"),
    (r"\btold\b(?! of)(?!,? and)", "the noun: data, report, values"),
    (r"\bask_\w+|\bTOLD\w*\b|\bAsker\b", "request_, query_, Caller"),
    (r"\bquickly_built\b|\bquick_values\b|\bquick_cursor\b", "fast_init, fast_dataclasses, prepared_cursor"),
    (r"\bpatience\b|\b_patiently\b", "backoff, skips_max"),
    (r"\bkeep_apart\b|\b_?take_turn\b|\bmerge_turns\b", "record_bad_files, run_source_cycle, merge_stops"),
    (r"\bis_lasting\b", "is_durable"),
    (r"\bcount_happen\w*\b", "count_events"),
    (r"\blone_blocks\b|\bLONE_\w+", "single_blocks"),
    (r"\bgive_blocks_back\(|\bset_aside_jobs\b", "return_job_blocks, cancel_jobs"),
    (r"(?i)remnant", "partial batch"),
    (r"\b(queue|policy|setting|state|count|what|confined|colour)_words?\b", "_labels, _text"),
    (r"\bhindrances?\b|[Ww]hat stands in the way", "blockers"),
    (r"\bsaid_to_viewers\b|\bUNSAID\b|\b_say_\w+", "viewer_errors, _print_"),
    (r"\bis_noticed\b|\bsettle_awake\b", "is_marked_ready, mark_active_tenants"),
    (r"\blook_again_(at_)?ms\b|\blooked_at_ms\b", "recheck_ms, analysed_at_ms"),
    (r"\bforesight\b|\bforeseen?\b", "forecast"),
    (r"\b[Ff]iles? kept out|\b[Bb]locks? kept out|[Cc]hunks? set aside", "quarantined"),
    (r"\banew\b|[Tt]akes? back|[Tt]aken? back|\bTAKE_\w*BACK\b", "again, remove, revert"),
    (r"\blets (it|this|the)\b|\b[Gg]oes on\b|\b(jobs|[Tt]asks|others) (that run )?go on\b", "continue, is planned"),
    (r"\b[Vv]erdicts?\b|\b[Ss]tandings?\b", "decision, action; status, state"),
    (r"\border: ActionContext|\bChunkOrder", "context, ChunkOverride"),
    (r"needs somebody|until somebody decides", "needs attention, until an operator decides"),
)


def shipped_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", *SHIPPED], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    kinds = {".py", ".pyx", ".pxd", ".pyi", ".html", ".ts"}
    paths = [ROOT / name for name in listing.split("\0") if name]
    return [path for path in paths if path.suffix in kinds and path.is_file() and "_pb2" not in path.name]


@pytest.mark.parametrize(("retired", "term"), RETIRED, ids=[term for _, term in RETIRED])
def test_retired_phrases_do_not_come_back(retired: str, term: str) -> None:
    pattern = re.compile(retired)
    found = [
        f"{path.relative_to(ROOT)}:{number}: use {term}"
        for path in shipped_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found
